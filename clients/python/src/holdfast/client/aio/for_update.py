"""The second half of acquire-for-update: the handler under its lease, then the release."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from holdfast.client.aio.session import Session
from holdfast.client.document import State
from holdfast.client.errors import ClientError
from holdfast.client.handshake import OnError, join

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
        result = await _while_held(session, state, handler)
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


async def _while_held(
    session: Session, state: State | None, handler: Callable[[Session, State | None], Awaitable[T]]
) -> T:
    """Run the handler, and cancel it when the lease is lost."""
    running = asyncio.ensure_future(handler(session, state))
    lost = asyncio.ensure_future(session.lost.wait())
    try:
        await asyncio.wait({running, lost}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        lost.cancel()
        if not running.done():
            running.cancel()
            await asyncio.wait({running})
    if running.cancelled() and session.lost_because is not None:
        raise session.lost_because
    return running.result()


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
