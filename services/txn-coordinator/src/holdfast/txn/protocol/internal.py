"""What other processes of an island ask the coordinator of a cluster: decide, enlist. For processes of the plane only."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from holdfast.common.express.message import Answer, Request, json_answer
from holdfast.common.express.router import ExpressRouter
from holdfast.common.principal import Permission
from holdfast.txn.cluster.lead import Lead
from holdfast.txn.cluster.remote_lead import DECIDE_PATH, ENLIST_PATH
from holdfast.txn.layer.port import Decision, Member

Int64 = Annotated[int, Field(ge=-(1 << 63), le=(1 << 63) - 1)]


class DecideRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    txn_id: str
    state: Decision


class DecideAnswer(BaseModel):
    state: str


class MemberBody(BaseModel):
    model_config = ConfigDict(strict=True)

    namespace: str
    key: str


class EnlistRequest(BaseModel):
    model_config = ConfigDict(strict=True)

    txn_id: str
    expires_at_ms: Int64
    members: list[MemberBody]


class EnlistAnswer(BaseModel):
    expires_at_ms: int


class InternalTxnRoutes:
    """`lead` is set while the store is open."""

    lead: Lead

    def __init__(self) -> None:
        self.router = ExpressRouter(tags=("internal",), permission=Permission.INTERNAL)
        self.router.add(DECIDE_PATH, self._decide, request_model=DecideRequest, response_model=DecideAnswer)
        self.router.add(ENLIST_PATH, self._enlist, request_model=EnlistRequest, response_model=EnlistAnswer)

    async def _decide(self, request: Request, body: DecideRequest) -> Answer:
        state = await self.lead.end_with_lease(body.txn_id, body.state)
        return json_answer({"state": state.value})

    async def _enlist(self, request: Request, body: EnlistRequest) -> Answer:
        members = [Member(member.namespace, member.key) for member in body.members]
        await self.lead.enlist(body.txn_id, body.expires_at_ms, members)
        return json_answer({"expires_at_ms": body.expires_at_ms})
