"""Redis pub/sub beside NOTIFY: each commit's newest revision is published, and a heard one is a hint to look.

Redis is never waited for. A commit only leaves its revision here; one task sends the newest, one at a time, another
one listens. While Redis is away both try again with growing pauses, and NOTIFY and the poll stand in.
"""

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, cast

from pydantic import SecretStr
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from holdfast.common.backoff import Backoff
from holdfast.storage.errors import InvalidStoreUrl

CALL_TIMEOUT_S = 2.0
PING_INTERVAL_S = 5.0  # A Redis that is silent for two of these counts as gone.
_REVISION_DIGITS_MAX = 19

_log = logging.getLogger(__name__)


class _Subscription(Protocol):
    """What is used of redis-py's PubSub, whose types are not complete."""

    async def subscribe(self, channel: str) -> None: ...

    async def get_message(self, *, timeout: float) -> dict[str, Any] | None: ...

    async def ping(self) -> Awaitable[bool]: ...


class _Client(Protocol):
    """What is used of redis-py's client."""

    async def publish(self, channel: str, message: str) -> int: ...

    def pubsub(self) -> AbstractAsyncContextManager[_Subscription]: ...

    async def aclose(self) -> None: ...


class RedisHints:
    """Tells other processes of commits, and calls `on_notice` as a `Listener` does."""

    def __init__(self, url: SecretStr, store_id: uuid.UUID, on_notice: Callable[[str], None]) -> None:
        # One each, of one connection: a pool would keep a dead one for the next call after an outage.
        self._publisher = _client(url)
        self._subscriber = _client(url)
        self._channel = f"holdfast.{store_id}"
        self._on_notice = on_notice
        self._newest_revision = 0
        self._has_news = asyncio.Event()
        self._problems: dict[str, str] = {}
        self._published = 0
        self._heard = 0
        self._outages = 0

    def committed(self, revision: int) -> None:
        """This process has committed up to here; the hint follows when Redis takes it."""
        if revision > self._newest_revision:
            self._newest_revision = revision
            self._has_news.set()

    def figures(self) -> dict[str, float]:
        return {
            "redis_up": float(not self._problems),
            "redis_published": self._published,
            "redis_heard": self._heard,
            "redis_outages": self._outages,
        }

    async def publish(self) -> None:
        """Send the newest revision whenever there is one. Ends only by cancellation."""
        backoff = Backoff(None)
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            try:
                async with asyncio.timeout(CALL_TIMEOUT_S):
                    await self._publisher.publish(self._channel, str(self._newest_revision))
            except (RedisError, OSError) as error:
                self._failed("publish", error)
                self._has_news.set()
                await backoff.pause()
            else:
                self._published += 1
                self._works("publish")
                backoff = Backoff(None)

    async def listen(self) -> None:
        """Hear what others publish. Ends only by cancellation."""
        backoff = Backoff(None)
        while True:
            heard_before = self._heard
            try:
                async with self._subscriber.pubsub() as subscription:
                    await self._hear(subscription)
            except (RedisError, OSError) as error:
                self._failed("listen", error)
            if self._heard > heard_before:
                backoff = Backoff(None)
            await backoff.pause()

    async def close(self) -> None:
        await self._publisher.aclose()
        await self._subscriber.aclose()

    async def _hear(self, subscription: _Subscription) -> None:
        """Ends by an error alone, when Redis is lost or does not even answer a ping."""
        async with asyncio.timeout(CALL_TIMEOUT_S):
            await subscription.subscribe(self._channel)
        is_pinged = False
        while True:
            message = await subscription.get_message(timeout=PING_INTERVAL_S)
            if message is not None:
                is_pinged = False
                self._take(message)
            elif is_pinged:
                raise TimeoutError("no answer to a ping")
            else:
                await subscription.ping()
                is_pinged = True

    def _take(self, message: dict[str, Any]) -> None:
        if message["type"] == "subscribe":
            self._works("listen")
            self._on_notice("")  # What was published before is lost.
        elif message["type"] == "message" and (revision := _revision(message["data"])) is not None:
            self._heard += 1
            self._on_notice(revision)

    def _failed(self, task: str, error: Exception) -> None:
        """One line for an outage, however often and by whom it is met."""
        if not self._problems:
            self._outages += 1
            _log.warning("Redis is away, NOTIFY and the poll stand in: %s", _reason(error))
        self._problems[task] = _reason(error)

    def _works(self, task: str) -> None:
        if self._problems.pop(task, None) is not None and not self._problems:
            _log.info("Redis answers again")


@asynccontextmanager
async def open_redis_hints(
    url: SecretStr, store_id: uuid.UUID, on_notice: Callable[[str], None]
) -> AsyncGenerator[RedisHints, None]:
    """Hints that are ready to be run. Redis need not be there. Raises InvalidStoreUrl for a URL that can't be read."""
    hints = RedisHints(url, store_id, on_notice)
    try:
        yield hints
    finally:
        await hints.close()


def _client(url: SecretStr) -> _Client:
    try:
        client = Redis.from_url(
            url.get_secret_value(),
            socket_timeout=CALL_TIMEOUT_S,
            socket_connect_timeout=CALL_TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),  # One place tries again, and it is this module.
        )
        pool: Any = client.connection_pool
        pool.make_connection()  # Unknown options show only here.
    except (ValueError, TypeError):
        # The driver's text may hold the password.
        raise InvalidStoreUrl(
            "the Redis URL can't be read; it looks like redis://:password@host:6379/0"
        ) from None
    return cast(_Client, client)


def _revision(data: object) -> str | None:
    """A hint as a commit sends it; any Redis client may publish anything."""
    text = data.decode("ascii", "replace") if isinstance(data, bytes) else str(data)
    return text if len(text) <= _REVISION_DIGITS_MAX and text.isascii() and text.isdecimal() else None


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
