"""The calls of a renewer: for one lease, or for many that are due together."""

from holdfast.client.aio.concurrency import deadline
from holdfast.client.aio.transport import Transport
from holdfast.client.errors import ClientError, TransportTimedOut
from holdfast.client.options import ClientOptions
from holdfast.client.session.hold import Hold
from holdfast.client.session.keepalive_batch import KeepaliveBatches, NotBatched
from holdfast.client.session.renewal import Renewal
from holdfast.client.wire.flow import Channel
from holdfast.common.ids import uuid7


class KeepaliveCalls:
    """One job of the schedule is one call."""

    def __init__(self, transport: Transport, channel: Channel, options: ClientOptions) -> None:
        self._transport = transport
        self._correlation_id = options.correlation_id
        self._batches = KeepaliveBatches(channel, timeout_s=options.keepalive_timeout_s)

    @property
    def is_batch_allowed(self) -> bool:
        return self._batches.is_worth_a_try

    async def renew(self, job: list[Renewal]) -> list[ClientError | None]:
        """What became of each; NotBatched if they have to be renewed one by one. Raises nothing else."""
        try:
            if len(job) > 1:
                return await self._renew_many(job)
            await self._renew_one(job[0])
            return [None]
        except NotBatched:
            raise
        except ClientError as problem:
            return [problem] * len(job)
        except Exception as error:  # noqa: BLE001  # The edge of a task: its holders hear of it in the end.
            return [ClientError(f"the renewal failed: {error!r}")] * len(job)

    async def _renew_one(self, renewal: Renewal) -> None:
        """The lease must not end unnoticed while a slow server makes up its mind."""
        try:
            async with deadline(renewal.renewable.remaining_s()), renewal.guard:
                if renewal.is_live:
                    await self._transport.run(renewal.renewable.keepalive())
        except TimeoutError as error:
            raise TransportTimedOut("no answer before the lease ended") from error

    async def _renew_many(self, job: list[Renewal]) -> list[ClientError | None]:
        holds = [renewal.renewable for renewal in job if isinstance(renewal.renewable, Hold)]
        assert len(holds) == len(job), "only leases of keys are batched"
        last_s = max(hold.remaining_s() or 0.0 for hold in holds)
        try:
            async with deadline(last_s):
                return await self._transport.run(self._batches.renew(holds, self._correlation_id or uuid7()))
        except TimeoutError as error:
            raise TransportTimedOut("no answer before the last of the leases ended") from error
