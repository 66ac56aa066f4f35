"""What the services of a split plane ask the coordinator: decide, keep. For processes of the plane only."""

from pydantic import BaseModel, ConfigDict

from holdfast.common.express.message import Answer, Request, json_answer
from holdfast.common.express.router import ExpressRouter
from holdfast.common.principal import Permission
from holdfast.storage.remote_decision import DECIDE_PATH, ENLIST_PATH, KEEP_PATH
from holdfast.storage.resource import Decision
from holdfast.storage.resource_routes import KeepAnswer, KeepRequest, MemberBody, members_of
from holdfast.txn.decisions import Decisions
from holdfast.txn.lead import Lead


class SettleRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    txn_id: str
    state: Decision
    is_joint: bool
    members: list[MemberBody]


class SettleAnswer(BaseModel):
    state: str


class InternalTxnRoutes:
    """`decisions` and `lead` are set while the store is open."""

    decisions: Decisions
    lead: Lead

    def __init__(self) -> None:
        self.router = ExpressRouter(tags=("internal",), permission=Permission.INTERNAL)
        self.router.add(DECIDE_PATH, self._decide, request_model=SettleRequest, response_model=SettleAnswer)
        self.router.add(KEEP_PATH, self._keep, request_model=KeepRequest, response_model=KeepAnswer)
        self.router.add(ENLIST_PATH, self._enlist, request_model=KeepRequest, response_model=KeepAnswer)

    async def _decide(self, request: Request, body: SettleRequest) -> Answer:
        if body.is_joint:
            return json_answer({"state": (await self.lead.settle(body.txn_id, body.state)).value})
        await self.decisions.settle_single(body.txn_id, body.state, members_of(body.members))
        return json_answer({"state": body.state.value})

    async def _keep(self, request: Request, body: KeepRequest) -> Answer:
        members = members_of(body.members)
        return json_answer(
            {"expires_at_ms": await self.decisions.keep(body.txn_id, body.expires_at_ms, members)}
        )

    async def _enlist(self, request: Request, body: KeepRequest) -> Answer:
        await self.lead.enlist(body.txn_id, body.expires_at_ms, members_of(body.members))
        return json_answer({"expires_at_ms": body.expires_at_ms})
