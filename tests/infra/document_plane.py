"""Leases, documents and attachments wired together over a store."""

from holdfast.common.clock import FakeClock, SteadyClock
from holdfast.leases.layer.grant import AcquireParams, Claim
from holdfast.leases.layer.service import LeaseService
from holdfast.state.layer.attachment.rules import Attached, Selector, Upload
from holdfast.state.layer.attachment.service import AttachmentService
from holdfast.state.layer.document.mutation.service import MutationService
from holdfast.state.layer.document.service import StateService
from holdfast.state.layer.document.staging import ANYTHING, View
from holdfast.storage.intake import pieces_of
from holdfast.storage.port import Store
from holdfast.txn.layer.coordinator import Coordinator
from holdfast.txn.layer.port import Decision, Member

DOCUMENT_BYTES_MAX = 1 << 20


class Plane:
    """The services of a plane, and the calls that most tests begin with."""

    def __init__(self, store: Store) -> None:
        self.time = FakeClock()
        clock = SteadyClock(self.time)
        coordinator = Coordinator()
        self.store = store
        self.leases = LeaseService(store, coordinator, clock)
        self.state = StateService(store, clock)
        self.attachments = AttachmentService(store, clock)
        self.mutations = MutationService(self.state, clock, DOCUMENT_BYTES_MAX)
        coordinator.enlist(self.state)
        coordinator.enlist(self.leases)

    async def acquire(self, member: Member, txn_id: str = "", *, ttl_s: int = 30) -> Claim:
        grant = await self.leases.acquire(AcquireParams(member, "worker", ttl_s, 0.0, txn_id))
        return Claim(grant.lease_id, grant.fencing_token, grant.txn_id)

    async def release(self, member: Member, claim: Claim, decision: Decision = Decision.COMMIT) -> None:
        await self.leases.release(member, claim, decision)

    async def update(
        self, member: Member, claim: Claim, text: bytes, *, is_hidden: bool | None = None
    ) -> View:
        content = await self.state.content_of(member, text)
        return await self.state.update(member, claim, content, ANYTHING, is_hidden=is_hidden)

    async def attach(self, member: Member, claim: Claim, name: str, content: bytes) -> Attached:
        return await self.attachments.put(
            member, claim, Upload(name, "text/plain", None, False), pieces_of(content)
        )

    async def names(self, member: Member, claim: Claim | None = None) -> list[str]:
        return [named.name for named in await self.attachments.list(member, claim)]

    async def download(self, member: Member, name: str, claim: Claim | None = None) -> bytes:
        download = await self.attachments.get(member, claim, Selector(name, ""))
        if not download.named.attachment.HasField("blob"):
            return download.inline
        pieces = self.attachments.open_content(member, download.named.attachment)
        return b"".join([piece async for piece in pieces])
