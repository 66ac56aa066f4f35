"""What other processes of an island ask the coordinator of a cluster: decide, enlist. For processes of the plane only."""

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from holdfast.common.express.message import Answer, Request, json_answer
from holdfast.common.express.router import ExpressRouter
from holdfast.common.fields import InvalidKey, InvalidNamespace, stored_key, stored_namespace
from holdfast.common.ids import is_xid
from holdfast.common.security.principal import Permission
from holdfast.txn.cluster.lead import Lead
from holdfast.txn.cluster.remote_lead import DECIDE_PATH, ENLIST_PATH
from holdfast.txn.layer.errors import InvalidTxnId, TxnConflict
from holdfast.txn.layer.port import MEMBERS_MAX, Decision, Member, TooManyParticipants

TIME_MS_MAX: Final = (1 << 40) * 1000  # Far beyond any lease, and far below what a record can hold.

TimeMs = Annotated[int, Field(ge=0, le=TIME_MS_MAX)]


class InternalBody(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class DecideRequest(InternalBody):
    txn_id: str
    state: Decision


class DecideAnswer(BaseModel):
    state: str


class MemberBody(InternalBody):
    namespace: str
    key: str


class EnlistRequest(InternalBody):
    txn_id: str
    expires_at_ms: TimeMs
    members: list[MemberBody] = Field(description="None: the transaction lives until then, and none joins.")


class EnlistAnswer(BaseModel):
    expires_at_ms: int


class InternalTxnRoutes:
    """`lead` is set while the store is open."""

    lead: Lead

    def __init__(self) -> None:
        self.router = ExpressRouter(tags=("internal",), permission=Permission.INTERNAL)
        self.router.add(
            DECIDE_PATH,
            self._decide,
            request_model=DecideRequest,
            response_model=DecideAnswer,
            errors=(InvalidTxnId,),
        )
        self.router.add(
            ENLIST_PATH,
            self._enlist,
            request_model=EnlistRequest,
            response_model=EnlistAnswer,
            errors=(InvalidTxnId, InvalidNamespace, InvalidKey, TooManyParticipants, TxnConflict),
        )

    async def _decide(self, request: Request, body: DecideRequest) -> Answer:
        state = await self.lead.end_with_lease(_txn_id(body), body.state)
        return json_answer({"state": state.value})

    async def _enlist(self, request: Request, body: EnlistRequest) -> Answer:
        if len(body.members) > MEMBERS_MAX:
            raise TooManyParticipants(f"a transaction has at most {MEMBERS_MAX} participants")
        members = [Member(stored_namespace(one.namespace), stored_key(one.key)) for one in body.members]
        await self.lead.enlist(_txn_id(body), body.expires_at_ms, members)
        return json_answer({"expires_at_ms": body.expires_at_ms})


def _txn_id(body: DecideRequest | EnlistRequest) -> str:
    if not is_xid(body.txn_id):
        raise InvalidTxnId("txn_id is no transaction id")
    return body.txn_id
