"""Acquire: asked again while it makes sense, never longer than the caller wants to wait."""

from dataclasses import dataclass

from holdfast.client.errors import AlreadyExists, ApiError, InvalidArgument
from holdfast.client.options import ClientOptions
from holdfast.client.wire import request
from holdfast.client.wire.call import Answer, Call
from holdfast.client.wire.flow import Channel, Flow
from holdfast.client.wire.patience import patiently
from holdfast.client.wire.retry import RETRIES_DEFAULT
from holdfast.common.ids import uuid7

BLOCK_S_DEFAULT = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquisition:
    """What is wanted. `block_s` is how long to wait for a held key: None is for ever, 0 not at all."""

    namespace: str
    key: str
    owner: str
    correlation_id: str
    ttl_s: float = 30.0
    block_s: float | None = BLOCK_S_DEFAULT
    txn_id: str = ""
    if_not_exists: bool = False
    retries: int = RETRIES_DEFAULT
    """How often in a row a request without an answer is sent again."""

    def __post_init__(self) -> None:
        if self.block_s is not None and self.block_s < 0:
            raise InvalidArgument("block_s is negative; 0 does not wait, None waits for ever")
        if self.ttl_s < 0:
            raise InvalidArgument("ttl_s is negative; 0 takes the server's default")

    @classmethod
    def of(
        cls,
        options: ClientOptions,
        *,
        key: str,
        ttl_s: float,
        block_s: float | None,
        owner: str | None,
        namespace: str | None,
        retries: int,
        txn_id: str = "",
        if_not_exists: bool = False,
    ) -> "Acquisition":
        """What a caller asks for, filled up from the options of its client."""
        return cls(
            namespace=namespace or options.namespace,
            key=key,
            owner=owner or options.owner_or_default(),
            correlation_id=options.correlation_id or uuid7(),
            ttl_s=ttl_s,
            block_s=block_s,
            txn_id=txn_id,
            if_not_exists=if_not_exists,
            retries=retries,
        )

    def run(self, channel: Channel) -> Flow[Answer]:
        """The answer that grants the lease; anything else is raised."""
        answer = yield from patiently(
            channel,
            lambda block_seconds: self._call(block_seconds, channel.timeout_s),
            block_s=self.block_s,
            retries=self.retries,
            may_pass=_may_pass,
        )
        return answer

    def _call(self, block_seconds: int, timeout_s: float) -> Call:
        return request.acquire(
            namespace=self.namespace,
            key=self.key,
            owner=self.owner,
            ttl_s=self.ttl_s,
            block_seconds=block_seconds,
            txn_id=self.txn_id,
            if_not_exists=self.if_not_exists,
            correlation_id=self.correlation_id,
            timeout_s=timeout_s,
        )


def _may_pass(problem: ApiError) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(problem, AlreadyExists):
        return False
    return problem.status in {409, 429} or problem.status >= 500
