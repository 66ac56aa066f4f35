"""What a service of a split plane answers to the coordinator: apply a decision, keep members alive. For processes only."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from holdfast.common.express.message import Answer, Request, json_answer
from holdfast.common.express.router import ExpressRouter
from holdfast.common.principal import Permission
from holdfast.storage.resource import Decision, Member

APPLY_PATH = "/internal/v1/rm/apply"
RM_KEEP_PATH = "/internal/v1/rm/keep"

Int64 = Annotated[int, Field(ge=-(1 << 63), le=(1 << 63) - 1)]
Apply = Callable[[str, Decision, Sequence[Member]], Awaitable[bool]]
"""Whether it is done; if not, the other services have to apply once more before this one can."""
Keep = Callable[[str, int, Sequence[Member]], Awaitable[int]]


class MemberBody(BaseModel):
    model_config = ConfigDict(strict=True)

    namespace: str
    key: str


class ApplyRequest(BaseModel):
    txn_id: str
    decision: Decision
    members: list[MemberBody]


class ApplyAnswer(BaseModel):
    done: bool


class KeepRequest(BaseModel):
    model_config = ConfigDict(strict=True)

    txn_id: str
    expires_at_ms: Int64
    members: list[MemberBody]


class KeepAnswer(BaseModel):
    expires_at_ms: int


class ResourceRoutes:
    """`apply` and `keep` are set while the store is open."""

    apply: Apply
    keep: Keep

    def __init__(self) -> None:
        self.router = ExpressRouter(tags=("internal",), permission=Permission.INTERNAL)
        self.router.add(APPLY_PATH, self._apply, request_model=ApplyRequest, response_model=ApplyAnswer)
        self.router.add(RM_KEEP_PATH, self._keep, request_model=KeepRequest, response_model=KeepAnswer)

    async def _apply(self, request: Request, body: ApplyRequest) -> Answer:
        is_done = await self.apply(body.txn_id, body.decision, members_of(body.members))
        return json_answer({"done": is_done})

    async def _keep(self, request: Request, body: KeepRequest) -> Answer:
        expires_at_ms = await self.keep(body.txn_id, body.expires_at_ms, members_of(body.members))
        return json_answer({"expires_at_ms": expires_at_ms})


def members_of(bodies: Sequence[MemberBody]) -> list[Member]:
    return [Member(body.namespace, body.key) for body in bodies]
