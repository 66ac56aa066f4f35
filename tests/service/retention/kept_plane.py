"""Leases, documents, attachments and a queue over one store, with the walks that forget, and a clock that the test owns."""

from collections import Counter
from contextlib import suppress

from holdfast.common.clock import FakeClock
from holdfast.common.telemetry.metrics import Registry
from holdfast.leases.layer.errors import Waiting
from holdfast.leases.layer.grant import AcquireParams, Claim, Grant
from holdfast.leases.layer.retention import KeyRetention, Retention
from holdfast.leases.metrics import LeaseMetrics
from holdfast.state.layer.attachment.rules import Upload
from holdfast.state.layer.attachment.service import AttachmentService
from holdfast.state.layer.document.retention import DocumentRetention
from holdfast.state.layer.document.staging import ANYTHING
from holdfast.state.metrics import RetentionMetrics
from holdfast.storage.intake import pieces_of
from holdfast.storage.keys import unpack
from holdfast.storage.maintenance.janitor import JanitorPace
from holdfast.storage.port import RANGE_LIMIT_MAX, Store
from holdfast.txn.layer.port import Decision, Member
from tests.service.queue.words import Queue

DAY_S = 86_400.0
ALWAYS = JanitorPace(interval_s=0.0, pause_s=0.0)
KEYS_ONLY = Retention(key_s=DAY_S, document_s=0.0, pace=ALWAYS)
BOTH = Retention(key_s=DAY_S, document_s=30 * DAY_S, pace=ALWAYS)


class KeptPlane:
    """The calls that most tests begin with."""

    def __init__(self, store: Store, clock: FakeClock, retention: Retention = KEYS_ONLY) -> None:
        self.store = store
        self.clock = clock
        self.queue = Queue(store, clock=clock)
        self.leases = self.queue.leases
        self.state = self.queue.state
        self.attachments = AttachmentService(store, self.queue.steady)
        self.registry = Registry()
        self.keys = KeyRetention(
            store,
            self.queue.steady,
            retention,
            expire=self.leases.end_expired,
            count=LeaseMetrics(self.registry).forgotten.inc,
        )
        self.documents = DocumentRetention(
            store, self.state, self.queue.steady, retention, RetentionMetrics(self.registry)
        )

    async def acquire(self, member: Member, ttl_s: int = 30, txn_id: str = "") -> Grant:
        return await self.leases.acquire(AcquireParams(member, "worker", ttl_s, 0.0, txn_id))

    async def is_held(self, member: Member) -> bool:
        with suppress(Waiting):
            await self.release(member, await self.acquire(member))
            return False
        return True

    async def release(self, member: Member, grant: Grant, decision: Decision = Decision.COMMIT) -> None:
        await self.leases.release(member, claim(grant), decision)

    async def use(self, member: Member) -> int:
        """Acquire and release; the fencing token of it."""
        grant = await self.acquire(member)
        await self.release(member, grant)
        return grant.fencing_token

    async def write(self, member: Member, text: bytes) -> None:
        grant = await self.acquire(member)
        await self.stage(member, grant, text)
        await self.release(member, grant)

    async def stage(self, member: Member, grant: Grant, text: bytes) -> None:
        content = await self.state.content_of(member, text)
        await self.state.update(member, claim(grant), content, ANYTHING)

    async def attach(self, member: Member, name: str, content: bytes) -> None:
        grant = await self.acquire(member)
        upload = Upload(name, "text/plain", None, False)
        await self.attachments.put(member, claim(grant), upload, pieces_of(content))
        await self.release(member, grant)

    async def remove(self, member: Member) -> None:
        grant = await self.acquire(member)
        await self.state.remove(member, claim(grant), ANYTHING)
        await self.release(member, grant)

    async def read(self, member: Member) -> bytes | None:
        view = await self.state.get_public(member)
        return None if view.content is None else await self.state.read_whole(member, view)

    async def forget(self) -> int:
        """Walk over everything: documents first, then what is left of their keys."""
        return await self.documents.walk() + await self.keys.walk()

    async def tables(self) -> Counter[str]:
        """How many records there are of each kind."""
        counts: Counter[str] = Counter()
        start = b""
        while page := await self.store.range(start, None, limit=RANGE_LIMIT_MAX, keys_only=True):
            counts.update(str(unpack(record.key)[0]) for record in page)
            start = page[-1].key + b"\x00"
        return counts


def claim(grant: Grant) -> Claim:
    return Claim(grant.lease_id, grant.fencing_token, grant.txn_id)
