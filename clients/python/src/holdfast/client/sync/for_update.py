# Generated from aio/for_update.py by generate_sync.py: change that, then run `make sync-client`.
"""The second half of acquire-for-update: the handler under its lease, then the release."""

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from holdfast.client.errors import ClientError
from holdfast.client.session.document import State
from holdfast.client.session.handshake import OnError, join
from holdfast.client.sync.concurrency import run_until
from holdfast.client.sync.session import Session

T = TypeVar("T")


def run_handler(
    session: Session,
    state: State | None,
    handler: Callable[[Session, State | None], T],
    *,
    on_error: OnError,
    release_retries: int,
) -> T:
    """The handler's result; every failure of handler, keepalive and release is raised."""
    try:
        result = run_until(session.lost, lambda: handler(session, state), lambda: session.lost_because)
    except Exception as error:
        more = _end_failed(session, error, on_error)
        if not more:
            raise
        raise join([error, *more]) from None
    except BaseException:
        with suppress(ClientError):
            session.end(rollback=True)
        raise
    session.end(retries=release_retries)
    return result


def _end_failed(session: Session, error: Exception, on_error: OnError) -> list[Exception]:
    """What else went wrong, besides the handler."""
    problems: list[Exception] = []
    lost_because = session.lost_because
    if lost_because is not None and lost_because is not error:
        problems.append(lost_because)
    try:
        session.end(rollback=on_error == "rollback" or lost_because is not None)
    except ClientError as problem:
        problems.append(problem)
    return problems
