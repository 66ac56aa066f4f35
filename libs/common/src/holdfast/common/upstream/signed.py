"""Calls in the name of this process: signed, and with correlation id, deadline and trace of the request they serve."""

from collections.abc import Sequence

from holdfast.common.express.message import Header
from holdfast.common.ids import HEADER as CORRELATION_HEADER
from holdfast.common.ids import fresh_correlation_id
from holdfast.common.logging import current_cid
from holdfast.common.security.internal_identity import DEADLINE_HEADER, HEADER, Signer
from holdfast.common.telemetry.tracing import outgoing_headers
from holdfast.common.upstream.port import RequestStream, Upstream, UpstreamAnswer


class SignedUpstream:
    """An `Upstream` whose every call carries the identity of this process."""

    def __init__(self, upstream: Upstream, signer: Signer) -> None:
        self._upstream = upstream
        self._signer = signer

    async def call(
        self,
        method: str,
        target: str,
        headers: Sequence[Header] = (),
        body: bytes | RequestStream = b"",
        *,
        deadline_s: float | None,
        affinity: bytes = b"",
        is_repeatable: bool = False,
    ) -> UpstreamAnswer:
        """See `Upstream.call`."""
        signature = self._signer.sign(method, target, body if isinstance(body, bytes) else None)
        signed: list[Header] = [
            (HEADER, signature),
            (CORRELATION_HEADER, (current_cid.get() or fresh_correlation_id()).encode("ascii")),
            *outgoing_headers(),
            *headers,
        ]
        if deadline_s is not None:
            signed.append((DEADLINE_HEADER, b"%d" % max(1, int(deadline_s * 1000))))
        return await self._upstream.call(
            method,
            target,
            signed,
            body,
            deadline_s=deadline_s,
            affinity=affinity,
            is_repeatable=is_repeatable,
        )

    async def problem(self) -> str | None:
        """See `Upstream.problem`."""
        return await self._upstream.problem()
