"""The second half of acquire-for-update: the handler under its lease, then the release."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from holdfast.client.aio.concurrency import run_until
from holdfast.client.aio.session import Session
from holdfast.client.errors import ClientError
from holdfast.client.session.document import State
from holdfast.client.session.handshake import OnError, join

T = TypeVar("T")


async def run_handler(
    session: Session,
    state: State | None,
    handler: Callable[[Session, State | None], Awaitable[T]],
    *,
    on_error: OnError,
    release_retries: int,
) -> T:
    """The handler's result; every failure of handler, keepalive and release is raised."""
    try:
        result = await run_until(session.lost, lambda: handler(session, state), lambda: session.lost_because)
    except Exception as error:
        more = await _end_failed(session, error, on_error)
        if not more:
            raise
        raise join([error, *more]) from None
    except BaseException:
        with suppress(ClientError):
            await session.end(rollback=True)
        raise
    await session.end(retries=release_retries)
    return result


async def _end_failed(session: Session, error: Exception, on_error: OnError) -> list[Exception]:
    """What else went wrong, besides the handler."""
    problems: list[Exception] = []
    lost_because = session.lost_because
    if lost_because is not None and lost_because is not error:
        problems.append(lost_because)
    try:
        await session.end(rollback=on_error == "rollback" or lost_because is not None)
    except ClientError as problem:
        problems.append(problem)
    return problems
