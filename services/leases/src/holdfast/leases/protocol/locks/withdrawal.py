"""Slots and places whose client was never told: how a gateway takes them back."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from pydantic import BaseModel, ConfigDict

from holdfast.common.express.message import Answer, Header, Request, json_answer
from holdfast.common.express.router import ExpressRouter
from holdfast.common.express.undo import Undo, WholeGrant
from holdfast.common.security.principal import Permission

WITHDRAW_PATH: Final = "/internal/v1/locks/withdraw"


class WithdrawLockRequest(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    key: str
    token: str | None = None
    ticket: str | None = None


class WithdrawLockAnswer(BaseModel):
    withdrawn: bool


def granted_lock(headers: Sequence[Header]) -> WholeGrant:
    return WholeGrant(WithdrawLockRequest.model_fields)


UNDO_LOCK: Final = Undo(WITHDRAW_PATH, granted_lock)


class LockWithdrawalRoutes:
    """For processes of the plane."""

    def __init__(self, withdraw: Callable[[WithdrawLockRequest], Awaitable[bool]]) -> None:
        self._withdraw = withdraw
        self.router = ExpressRouter(tags=("internal",), permission=Permission.INTERNAL)
        self.router.add(
            WITHDRAW_PATH, self.withdraw, request_model=WithdrawLockRequest, response_model=WithdrawLockAnswer
        )

    async def withdraw(self, request: Request, body: WithdrawLockRequest) -> Answer:
        return json_answer({"withdrawn": await self._withdraw(body)})
