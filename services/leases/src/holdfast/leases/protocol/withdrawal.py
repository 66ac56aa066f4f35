"""Leases whose holder was never told: how a gateway takes them back when its client is gone."""

from collections.abc import Sequence
from typing import Final

from pydantic import BaseModel, ConfigDict

from holdfast.common.express.message import Answer, Header, Request, json_answer
from holdfast.common.express.router import ExpressRouter
from holdfast.common.express.undo import Undo, WholeGrant
from holdfast.common.fields import stored_key
from holdfast.common.security.principal import Permission
from holdfast.leases.layer.service import LeaseService
from holdfast.txn.layer.port import Member

WITHDRAW_PATH: Final = "/internal/v1/leases/withdraw"


class WithdrawRequest(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    namespace: str
    key: str
    lease_id: str


class WithdrawAnswer(BaseModel):
    withdrawn: bool


def granted_lease(headers: Sequence[Header]) -> WholeGrant:
    return WholeGrant(WithdrawRequest.model_fields)


UNDO_ACQUIRE: Final = Undo(WITHDRAW_PATH, granted_lease)


class WithdrawalRoutes:
    """For processes of the plane. `service` is set while the store is open."""

    service: LeaseService

    def __init__(self) -> None:
        self.router = ExpressRouter(tags=("internal",), permission=Permission.INTERNAL)
        self.router.add(
            WITHDRAW_PATH, self.withdraw, request_model=WithdrawRequest, response_model=WithdrawAnswer
        )

    async def withdraw(self, request: Request, body: WithdrawRequest) -> Answer:
        member = Member(body.namespace, stored_key(body.key))
        return json_answer({"withdrawn": await self.service.withdraw(member, body.lease_id)})
