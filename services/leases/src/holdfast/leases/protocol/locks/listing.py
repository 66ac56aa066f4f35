"""Who holds which locks and who waits for them: page by page, or one key."""

from typing import Any, Final

from holdfast.common.express.message import Answer, Request, json_answer
from holdfast.common.express.router import ExpressRouter
from holdfast.common.fields import MissingKey, parse_int64
from holdfast.common.role import Role
from holdfast.leases.layer.locks.listening import ChannelView
from holdfast.leases.layer.locks.service import LIST_MAX, LockService
from holdfast.leases.layer.locks.views import HolderView, LockView, WaiterView
from holdfast.leases.protocol.locks.errors import InvalidLockKey, InvalidPage, LockNotFound
from holdfast.leases.protocol.locks.names import checked_key, owner_and_address, queried, spelled
from holdfast.leases.protocol.locks.places import fencing_token_of
from holdfast.leases.protocol.locks.schemas import ChannelsAnswer, LocksAnswer, ShownLock

LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = LIST_MAX
SHOWN_OF_LISTED: Final = 10
SHOWN_OF_ONE: Final = 1_000
"""Holders and waiters of a key that are told one by one; their numbers are exact."""


class ListingRoutes:
    """What operators ask. `service` is set while the process serves."""

    service: LockService

    def __init__(self) -> None:
        self.router = ExpressRouter(tags=("locks",), service=Role.LEASES, affinity="key")
        self.router.add(
            "/v1/locks",
            self.page,
            methods=("GET",),
            response_model=LocksAnswer,
            errors=(InvalidPage,),
            summary="Keys of locks and semaphores in their order, with holders and waiters.",
            query_parameters={
                "prefix": "Only keys that begin so.",
                "limit": f"At most so many, {LIMIT_DEFAULT} if left out, {LIMIT_MAX} at most.",
                "cursor": "What the page before answered.",
            },
        )
        self.router.add(
            "/v1/locks/describe",
            self.describe,
            methods=("GET",),
            response_model=ShownLock,
            errors=(MissingKey, InvalidLockKey, LockNotFound),
            summary="One key: its holders and waiters.",
            query_parameters={"key": "The key; its bytes percent-encoded, whatever they are."},
        )

        self.router.add(
            "/v1/signals/channels",
            self.channels,
            methods=("GET",),
            response_model=ChannelsAnswer,
            errors=(InvalidPage,),
            summary="Channels and patterns that are listened to, with their groups and listeners.",
            query_parameters={
                "prefix": "Only patterns that begin so.",
                "limit": f"At most so many, {LIMIT_DEFAULT} if left out, {LIMIT_MAX} at most.",
            },
        )

    async def channels(self, request: Request, body: None) -> Answer:
        limit = _limit(request.query("limit"))
        found = await self.service.channels_everywhere(queried(request, "prefix"))
        return json_answer({"channels": [_channel(view) for view in found[:limit]], "total": len(found)})

    async def page(self, request: Request, body: None) -> Answer:
        limit, after = _limit(request.query("limit")), _after(request.query("cursor"))
        found = await self.service.list_everywhere(queried(request, "prefix"), limit + 1, after)
        shown = found[:limit]
        answer = {
            "locks": [told(view, SHOWN_OF_LISTED) for view in shown],
            "cursor": shown[-1].name.hex() if len(found) > limit else None,
        }
        return json_answer(answer)

    async def describe(self, request: Request, body: None) -> Answer:
        view = await self.service.describe_everywhere(checked_key(queried(request, "key")))
        if view is None:
            raise LockNotFound("this key was not used lately")
        return json_answer(told(view, SHOWN_OF_ONE))


def told(view: LockView, shown_max: int) -> dict[str, Any]:
    """What is told of a key: everything but the tokens."""
    is_idle = not view.holders and not view.waiters
    return {
        **spelled("key", view.name),
        "limit": view.limit,
        "held": len(view.holders),
        "waiting": len(view.waiters),
        **({"idle_seconds": view.idle_s} if is_idle else {}),
        "holders": [_holder(holder) for holder in view.holders[:shown_max]],
        "waiters": [_waiter(waiter) for waiter in view.waiters[:shown_max]],
    }


def _channel(view: ChannelView) -> dict[str, Any]:
    return {
        **spelled("pattern", view.pattern),
        **(spelled("group", view.group) if view.group else {}),
        "listeners": view.listeners,
        "listening": [{"address": one.address, "age_seconds": one.age_s} for one in view.shown],
    }


def _holder(holder: HolderView) -> dict[str, Any]:
    owner, address = owner_and_address(holder.address)
    return {
        "owner": owner,
        "address": address,
        "fencing_token": fencing_token_of(holder.token),
        "ttl_seconds": holder.ttl_s,
        "age_seconds": holder.age_s,
        "lease_expires_in_seconds": holder.ends_in_s,
    }


def _waiter(waiter: WaiterView) -> dict[str, Any]:
    owner, address = owner_and_address(waiter.address)
    return {"owner": owner, "address": address, "age_seconds": waiter.age_s}


def _limit(text: str | None) -> int:
    if not text:
        return LIMIT_DEFAULT
    limit = parse_int64(text)
    if limit is None or limit < 1:
        raise InvalidPage("limit: a number from 1 on")
    return min(limit, LIMIT_MAX)


def _after(cursor: str | None) -> bytes:
    try:
        return bytes.fromhex(cursor or "")
    except ValueError as error:
        raise InvalidPage("cursor: send the one that the page before answered") from error
