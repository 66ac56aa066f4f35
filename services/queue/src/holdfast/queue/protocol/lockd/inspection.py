"""HTTP in, service call, HTTP out: looking at queues, their rules, and their dead letters."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final

from pydantic_core import from_json, to_json

from holdfast.common.errors import Draining, InvalidBody
from holdfast.common.express.message import Answer, Header, Request, StreamAnswer, json_answer
from holdfast.common.express.traits import ALL_METHODS, Duration
from holdfast.common.serving.drain import Waits
from holdfast.common.settings import PlaneSettings
from holdfast.queue.layer.errors import BatchTooLarge, InvalidPolicy
from holdfast.queue.layer.message.types import (
    BATCH_MAX,
    Availability,
    Body,
    DeadLetter,
    Message,
    Policy,
    QueueAddress,
)
from holdfast.queue.layer.service import QueueService
from holdfast.queue.protocol.lockd.fields import address_of
from holdfast.queue.protocol.lockd.messages import BAD_NAMES, QUERY, queue_router
from holdfast.queue.protocol.lockd.schemas import (
    DeadLetterChoice,
    DeadLettersAnswer,
    DeadLettersRequest,
    PeekAnswer,
    PeekRequest,
    PolicyAnswer,
    PolicyRequest,
    PurgeAnswer,
    QueueBody,
    RedriveAnswer,
    StatsAnswer,
)

KEEPALIVE_S: Final = 20.0
PEEK_MAX: Final = 100
DEAD_LETTERS_DEFAULT: Final = 100
_QUERY: Final = {**QUERY, "namespace": "Its namespace."}
_EVENTS: Final[list[Header]] = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
_EXAMPLE: Final = {"queue": "orders"}

Members = dict[str, Any]


class InspectionRoutes:
    """What operators ask. `service` is set while the store is open."""

    service: QueueService

    def __init__(self, settings: PlaneSettings, waits: Waits) -> None:
        self._namespace_default = settings.namespace_default
        self._waits = waits
        self.router = queue_router()
        self._declare_looks()
        self._declare_policy()
        self._declare_dead_letters()

    def _declare_looks(self) -> None:
        self.router.add(
            "/v1/queue/stats",
            self.stats,
            request_model=QueueBody,
            response_model=StatsAnswer,
            errors=BAD_NAMES,
            summary="Consumers and head of a queue, as this server sees them.",
            request_example=_EXAMPLE,
            query_parameters=_QUERY,
            is_body_optional=True,
            repeatable=ALL_METHODS,
        )
        self.router.add(
            "/v1/queue/watch",
            self.watch,
            methods=("POST", "GET"),
            request_model=QueueBody,
            response_content={"text/event-stream": {"type": "string"}},
            errors=BAD_NAMES,
            summary="The head of a queue as server-sent events: now, and whenever it changes.",
            request_example=_EXAMPLE,
            query_parameters=_QUERY,
            is_body_optional=True,
            duration=Duration.ENDLESS,
        )
        self.router.add(
            "/v1/queue/peek",
            self.peek,
            request_model=PeekRequest,
            response_model=PeekAnswer,
            errors=BAD_NAMES,
            summary="What would leave next, in order, without taking it.",
            request_example={**_EXAMPLE, "limit": 10, "payloads": True},
            query_parameters=_QUERY,
            is_body_optional=True,
            repeatable=ALL_METHODS,
        )

    def _declare_policy(self) -> None:
        self.router.add(
            "/v1/queue/policy",
            self.policy,
            request_model=PolicyRequest,
            response_model=PolicyAnswer,
            errors=(*BAD_NAMES, InvalidPolicy),
            summary="What holds for the messages of a queue; what the body names is set, the rest stays.",
            request_example={**_EXAMPLE, "max_attempts": 3, "visibility_timeout_seconds": 60},
            query_parameters=_QUERY,
            is_body_optional=True,
        )
        for path, handler, summary in (
            ("/v1/queue/pause", self.pause, "Deliver nothing more; messages still come in."),
            ("/v1/queue/resume", self.resume, "Deliver again."),
        ):
            self.router.add(
                path,
                handler,
                request_model=QueueBody,
                response_model=PolicyAnswer,
                errors=BAD_NAMES,
                summary=summary,
                request_example=_EXAMPLE,
                query_parameters=_QUERY,
                is_body_optional=True,
            )

    def _declare_dead_letters(self) -> None:
        self.router.add(
            "/v1/queue/dlq/list",
            self.dead_letters,
            request_model=DeadLettersRequest,
            response_model=DeadLettersAnswer,
            errors=BAD_NAMES,
            summary="Dead letters in order of their message ids.",
            request_example={**_EXAMPLE, "limit": 100, "after": ""},
            query_parameters=_QUERY,
            is_body_optional=True,
            repeatable=ALL_METHODS,
        )
        self.router.add(
            "/v1/queue/dlq/redrive",
            self.redrive,
            request_model=DeadLetterChoice,
            response_model=RedriveAnswer,
            errors=(*BAD_NAMES, BatchTooLarge),
            summary="Put dead letters back into the queue, with a fresh count of failures.",
            request_example={**_EXAMPLE, "message_ids": ["…"]},
            query_parameters=_QUERY,
        )
        self.router.add(
            "/v1/queue/dlq/purge",
            self.purge,
            request_model=DeadLetterChoice,
            response_model=PurgeAnswer,
            errors=(*BAD_NAMES, BatchTooLarge),
            summary="Remove dead letters for ever.",
            request_example={**_EXAMPLE, "message_ids": ["…"]},
            query_parameters=_QUERY,
        )

    async def stats(self, request: Request, body: QueueBody | None) -> Answer:
        stats = await self.service.stats(self._address(request, body))
        head = stats.head
        answer = {
            **stats.address._asdict(),
            "waiting_consumers": stats.waiting_consumers,
            "pending_candidates": stats.pending_candidates,
            "total_consumers": stats.total_consumers,
            "has_active_watcher": True,  # Consumers are woken by commits, on every store.
            "available": head is not None,
            "head_message_id": head.message_id if head else None,
            "head_enqueued_at_unix": head.enqueued_at_s if head else None,
            "head_not_visible_until_unix": head.not_visible_until_s if head else None,
            "head_age_seconds": head.age_s if head else None,
            "in_flight": stats.in_flight,
            "paused": stats.is_paused,
        }
        return _told(answer, request)

    async def watch(self, request: Request, body: QueueBody | None) -> StreamAnswer:
        address = self._address(request, body)
        events = self._events(address, request.correlation_id)
        return StreamAnswer(200, _EVENTS, None, events, is_endless=True)

    async def _events(self, address: QueueAddress, correlation_id: str) -> AsyncGenerator[bytes, None]:
        changes = self.service.watch(address)
        number = 0
        following = asyncio.ensure_future(anext(changes))
        try:
            while True:
                try:
                    await self._waits.until_drain(asyncio.wait({following}, timeout=KEEPALIVE_S))
                except Draining:
                    return
                if not following.done():
                    yield b": keepalive\n\n"
                    continue
                number += 1
                yield _event(number, address, following.result(), correlation_id)
                following = asyncio.ensure_future(anext(changes))
        except StopAsyncIteration:
            return
        finally:
            following.cancel()
            await asyncio.wait({following})
            if isinstance(changes, AsyncGenerator):
                await changes.aclose()

    async def peek(self, request: Request, body: PeekRequest | None) -> Answer:
        body = body or PeekRequest()
        address = self._address(request, body)
        found = await self.service.peek(address, _limit(body.limit, 1, PEEK_MAX))
        messages = [
            {**_stored(message), "payload_base64": _base64(content) if body.payloads else None}
            for message, content in found
        ]
        return _told({**address._asdict(), "messages": _without_none(messages)}, request)

    async def policy(self, request: Request, body: PolicyRequest | None) -> Answer:
        body = body or PolicyRequest()
        address = self._address(request, body)
        policy = await self.service.policy(address)
        asked = _changed(policy, body)
        if asked != policy:
            policy = await self.service.set_policy(address, asked)
        return _policy(address, policy, request)

    async def pause(self, request: Request, body: QueueBody | None) -> Answer:
        address = self._address(request, body)
        return _policy(address, await self.service.pause(address), request)

    async def resume(self, request: Request, body: QueueBody | None) -> Answer:
        address = self._address(request, body)
        return _policy(address, await self.service.resume(address), request)

    async def dead_letters(self, request: Request, body: DeadLettersRequest | None) -> Answer:
        body = body or DeadLettersRequest()
        address = self._address(request, body)
        limit = _limit(body.limit, DEAD_LETTERS_DEFAULT, BATCH_MAX)
        found = await self.service.dead_letters(address, limit, (body.after or "").strip())
        answer = {
            **address._asdict(),
            "messages": _without_none([_dead(letter) for letter in found]),
            "next_after": found[-1].message.message_id if len(found) == limit else None,
        }
        return _told(answer, request)

    async def redrive(self, request: Request, body: DeadLetterChoice) -> Answer:
        address = self._address(request, body)
        count = await self.service.redrive(address, _chosen(body), _limit(body.limit, BATCH_MAX, BATCH_MAX))
        return _told({"redriven": count}, request)

    async def purge(self, request: Request, body: DeadLetterChoice) -> Answer:
        address = self._address(request, body)
        count = await self.service.purge(address, _chosen(body), _limit(body.limit, BATCH_MAX, BATCH_MAX))
        return _told({"purged": count}, request)

    def _address(self, request: Request, body: QueueBody | None) -> QueueAddress:
        return address_of(request, body, self._namespace_default)


def _told(members: Members, request: Request) -> Answer:
    return json_answer({**members, "correlation_id": request.correlation_id})


def _policy(address: QueueAddress, policy: Policy, request: Request) -> Answer:
    answer = {
        **address._asdict(),
        "visibility_timeout_seconds": policy.visibility_s,
        "max_attempts": policy.max_attempts,
        "ttl_seconds": policy.ttl_s,
        "deliveries_per_second": policy.deliveries_per_s,
        "paused": policy.is_paused,
    }
    return _told(answer, request)


def _changed(policy: Policy, body: PolicyRequest) -> Policy:
    """The policy with what the body names."""
    return Policy(
        policy.visibility_s if body.visibility_timeout_seconds is None else body.visibility_timeout_seconds,
        policy.max_attempts if body.max_attempts is None else body.max_attempts,
        policy.ttl_s if body.ttl_seconds is None else body.ttl_seconds,
        policy.deliveries_per_s if body.deliveries_per_second is None else body.deliveries_per_second,
        policy.is_paused if body.paused is None else body.paused,
    )


def _event(number: int, address: QueueAddress, seen: Availability, correlation_id: str) -> bytes:
    members = {
        **address._asdict(),
        "available": seen.is_available,
        **({"head_message_id": seen.head_message_id} if seen.head_message_id else {}),
        "changed_at_unix": seen.changed_at_s,
        "correlation_id": correlation_id,
    }
    return b"id: %d\nevent: queue_watch\ndata: %b\n\n" % (number, to_json(members))


def _stored(message: Message) -> Members:
    return {
        **message.address._asdict(),
        "message_id": message.message_id,
        "attempts": message.attempts,
        "failure_attempts": message.failure_attempts or None,
        "max_attempts": message.max_attempts,
        "priority": message.priority or None,
        "enqueued_at_unix": message.enqueued_at_s,
        "not_visible_until_unix": message.not_visible_until_s or None,
        "visibility_timeout_seconds": message.visibility_s,
        "expires_at_unix": message.expires_at_s or None,
        "attributes": from_json(message.attributes) if message.attributes else None,
        "payload_content_type": message.content_type,
        "payload_bytes": message.payload_bytes,
        "last_error": from_json(message.last_error) if message.last_error else None,
        "correlation_id": message.correlation_id,
    }


def _dead(letter: DeadLetter) -> Members:
    return {**_stored(letter.message), "dead_at_unix": letter.dead_at_s}


def _without_none(messages: Sequence[Members]) -> list[Members]:
    return [{name: value for name, value in message.items() if value is not None} for message in messages]


def _base64(body: Body) -> str | None:
    return b64encode(body.inline).decode("ascii") if body.blob is None else None


def _limit(asked: int | None, default: int, largest: int) -> int:
    return min(asked, largest) if asked is not None and asked > 0 else default


def _chosen(body: DeadLetterChoice) -> list[str] | None:
    if body.message_ids is None:
        return None
    if not body.message_ids:
        raise InvalidBody("message_ids: name at least one, or leave it out to mean the oldest `limit`")
    if len(body.message_ids) > BATCH_MAX:
        raise BatchTooLarge(f"at most {BATCH_MAX} messages in one call")
    return body.message_ids
