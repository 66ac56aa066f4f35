"""A batch through the gateway: each of its items goes where the other calls about the same thing go."""

import asyncio
from collections.abc import Sequence
from typing import Final

from holdfast.common.errors import HoldfastError
from holdfast.common.express.message import AnyAnswer, Header, Request
from holdfast.common.express.route import Route
from holdfast.common.express.traits import Division
from holdfast.common.security.internal_identity import Signer
from holdfast.common.serving.drain import Drain
from holdfast.common.upstream.errors import UpstreamMalformed
from holdfast.common.upstream.service import ServiceClient
from holdfast.gateway.proxy.affinity import Affinity
from holdfast.gateway.proxy.proxied_route import ProxiedRoute
from holdfast.gateway.proxy.unfinished import collected

_SHUTDOWN: Final = (b"shutdown-imminent", b"true")


class Share:
    """What one replica has to do, by its place in the batch."""

    def __init__(self) -> None:
        self.affinity = b""
        self.places: list[int] = []
        self.items: list[object] = []
        self.is_draining = False


class DividedRoute(ProxiedRoute):
    """Divides a batch between the replicas of its service as its route says, and joins their results."""

    def __init__(
        self,
        route: Route,
        client: ServiceClient,
        signer: Signer,
        drain: Drain,
        affinity: Affinity,
        division: Division,
    ) -> None:
        super().__init__(route, client, signer, drain, affinity)
        self._division = division

    async def _pass_whole(self, request: Request) -> AnyAnswer:
        shares = self._shares(request.body)
        if len(shares) < 2:
            return await super()._pass_whole(request)
        found = await asyncio.gather(*(self._results(request, share) for share in shares))
        results: dict[int, object] = {}
        for share, own in zip(shares, found, strict=True):
            results.update(zip(share.places, own, strict=True))
        headers: Sequence[Header] = [_SHUTDOWN] if self._is_told_of_end(shares) else ()
        return self._division.answer([results[place] for place in sorted(results)], headers)

    def _shares(self, body: bytes) -> list[Share]:
        """By replica; none if this is no batch, which the service then says."""
        items = None if self._affinity is None else self._division.items(body)
        if self._affinity is None or items is None:
            return []
        shares: dict[int, Share] = {}
        for place, item in enumerate(items):
            affinity = self._affinity.of_members(item)
            share = shares.setdefault(self._client.home_of(affinity), Share())
            share.affinity = share.affinity or affinity  # One that names nothing goes along with any.
            share.places.append(place)
            share.items.append(item)
        return list(shares.values())

    async def _results(self, request: Request, share: Share) -> Sequence[object]:
        count = len(share.items)
        try:
            body = self._division.body(share.items)
            answer = await collected(await self._call(request, body, self._deadline_s, share.affinity))
            share.is_draining = any(name == _SHUTDOWN[0] for name, _ in answer.headers)
            results = self._division.results(answer.status, answer.body, count)
            if results is None:
                raise UpstreamMalformed("a replica did not answer for each item of its batch")
        except HoldfastError as error:
            return [self._division.refused(error)] * count
        return results

    def _is_told_of_end(self, shares: Sequence[Share]) -> bool:
        """A gateway that drains itself says so in every answer."""
        return not self._drain.is_draining and any(share.is_draining for share in shares)
