"""A batch of keepalives through the gateway: each renewal goes where the other calls about its key go.

A replica knows the leases that it grants and when they end. A batch that went to any of them would make each replica
watch over the leases of all.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from pydantic_core import from_json, to_json

from holdfast.common.errors import HoldfastError
from holdfast.common.express.message import AnyAnswer, Header, Request, json_answer
from holdfast.common.upstream.errors import UpstreamMalformed
from holdfast.common.wire_errors import error_members
from holdfast.gateway.passage import Passage
from holdfast.gateway.unfinished import collected
from holdfast.leases.schemas import KEEPALIVE_BATCH_MAX

KEEPALIVE_BATCH_PATH: Final = "/v1/keepalive/batch"
_SHUTDOWN: Final = (b"shutdown-imminent", b"true")

Result = dict[str, object]


class Share:
    """What one replica has to renew, by its place in the batch."""

    def __init__(self) -> None:
        self.affinity = b""
        self.places: list[int] = []
        self.renewals: list[object] = []
        self.is_draining = False


class BatchPassage(Passage):
    """Divides a batch between the replicas of its service, and puts their results together again."""

    async def _pass_whole(self, request: Request) -> AnyAnswer:
        shares = self._shares(request.body)
        if len(shares) < 2:
            return await super()._pass_whole(request)
        found = await asyncio.gather(*(self._results(request, share) for share in shares))
        results: dict[int, Result] = {}
        for share, own in zip(shares, found, strict=True):
            results.update(zip(share.places, own, strict=True))
        renewed = sum("expires_at_unix" in result for result in results.values())
        headers: Sequence[Header] = [_SHUTDOWN] if self._is_told_of_end(shares) else ()
        ordered = [results[place] for place in sorted(results)]
        return json_answer({"renewed": renewed, "results": ordered}, headers=headers)

    def _shares(self, body: bytes) -> list[Share]:
        """By replica; none if this is no batch, which the service then says."""
        if self._affinity is None:
            return []
        try:
            members: object = from_json(body)
        except ValueError:
            return []
        renewals = members.get("renewals") if isinstance(members, dict) and len(members) == 1 else None
        if not isinstance(renewals, list) or len(renewals) > KEEPALIVE_BATCH_MAX:
            return []
        shares: dict[int, Share] = {}
        for place, renewal in enumerate(renewals):
            affinity = self._affinity.of_members(renewal)
            share = shares.setdefault(self._client.home_of(affinity), Share())
            share.affinity = share.affinity or affinity  # One that names no key goes along with any.
            share.places.append(place)
            share.renewals.append(renewal)
        return list(shares.values())

    async def _results(self, request: Request, share: Share) -> list[Result]:
        body = to_json({"renewals": share.renewals})
        try:
            answer = await collected(await self._call(request, body, self._deadline_s, share.affinity))
            share.is_draining = any(name == _SHUTDOWN[0] for name, _ in answer.headers)
            return _read(answer.status, answer.body, len(share.renewals))
        except HoldfastError as error:
            return [{"status": error.status, **error_members(error)}] * len(share.renewals)

    def _is_told_of_end(self, shares: Sequence[Share]) -> bool:
        """A gateway that drains itself says so in every answer."""
        return not self._drain.is_draining and any(share.is_draining for share in shares)


def _read(status: int, body: bytes, count: int) -> list[Result]:
    """The results of one replica, or its refusal of them all for each of them."""
    try:
        members: object = from_json(body)
    except ValueError:
        members = None
    if isinstance(members, dict):
        if status >= 300:
            return [{"status": status, **members}] * count
        results = members.get("results")
        if isinstance(results, list) and len(results) == count:
            return results
    raise UpstreamMalformed("a replica did not answer for each of its renewals")
