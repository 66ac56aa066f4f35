"""Many leases renewed by one call, where the server has it: holdfast does, lockd does not."""

from collections.abc import Sequence
from typing import Final

from holdfast.client.errors import ClientError, UnexpectedAnswer
from holdfast.client.session.hold import Hold
from holdfast.client.wire import request
from holdfast.client.wire.call import Answer
from holdfast.client.wire.endpoint import Endpoint
from holdfast.client.wire.flow import Channel, Flow

BATCH_MAX: Final = 500
"""Half of what a server takes at most: two calls under way at once hold up fewer leases each."""
_ASK_AGAIN_S: Final = 30.0
_ASK_AGAIN_S_MAX: Final = 600.0
"""Something in front of the server may have refused one batch, and a server may be replaced by a newer one."""


class NotBatched(ClientError):
    """The server does not take these together; nothing was renewed."""


class KeepaliveBatches:
    """The batches of one client, and which endpoints it has found not to take any."""

    def __init__(self, channel: Channel, *, timeout_s: float) -> None:
        self._channel = channel
        self._timeout_s = timeout_s
        self._refused_until_s: dict[Endpoint, float] = {}
        self._refused_for_s: dict[Endpoint, float] = {}

    @property
    def is_worth_a_try(self) -> bool:
        """Whether the endpoint that is asked first may take a batch."""
        endpoint = self._channel.preferred
        if endpoint is None:
            return True
        return self._refused_until_s.get(endpoint, 0.0) <= self._channel.monotonic_s()

    def renew(self, holds: Sequence[Hold], correlation_id: str) -> Flow[list[ClientError | None]]:
        """What became of each, in their order; NotBatched if they have to be renewed one by one."""
        asked_s = [hold.asked_ttl_s for hold in holds]
        call = request.keepalive_batch(
            [(hold.lease, ttl_s) for hold, ttl_s in zip(holds, asked_s, strict=True)],
            correlation_id=correlation_id,
            timeout_s=self._timeout_s,
        )
        # Each lease that ends earlier is given up by the schedule at its own end.
        last_s = max((hold.remaining_s() or 0.0 for hold in holds), default=0.0)
        answer = yield from self._channel.send(call, deadline_s=self._channel.monotonic_s() + last_s)
        if 400 <= answer.status < 500 and answer.status not in (408, 429):
            raise self._refused(answer, f"status {answer.status}")
        if answer.status >= 300:
            raise answer.error()
        try:
            results = answer.members().items("results")
        except UnexpectedAnswer as problem:
            raise self._refused(answer, str(problem)) from problem
        if len(results) != len(holds):
            raise self._refused(answer, "another number of results than of renewals")
        return [
            hold.follow_batched(answer, members, ttl_s)
            for hold, members, ttl_s in zip(holds, results, asked_s, strict=True)
        ]

    def _refused(self, answer: Answer, why: str) -> NotBatched:
        endpoint = answer.endpoint
        if endpoint is not None:
            known_s = self._refused_for_s.get(endpoint, _ASK_AGAIN_S / 2)
            self._refused_for_s[endpoint] = for_s = min(2 * known_s, _ASK_AGAIN_S_MAX)
            self._refused_until_s[endpoint] = self._channel.monotonic_s() + for_s
        return NotBatched(f"the server takes no batch of keepalives: {why}")
