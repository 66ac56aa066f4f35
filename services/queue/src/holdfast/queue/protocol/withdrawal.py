"""Deliveries that reached no client: how a gateway finds them in an answer and gives them back when its client is gone."""

from collections.abc import Sequence
from typing import Final

from pydantic import BaseModel, ConfigDict
from pydantic_core import from_json, to_json

from holdfast.common.express.message import Answer, Header, Request, json_answer
from holdfast.common.express.router import ExpressRouter
from holdfast.common.express.undo import Undo
from holdfast.common.security.principal import Permission
from holdfast.queue.layer.message.types import QueueAddress
from holdfast.queue.layer.service import QueueService
from holdfast.queue.protocol.lockd.framing import CONTENT_TYPE

GIVE_BACK_PATH: Final = "/internal/v1/queue/give-back"
_META_BYTES_MAX: Final = 1 << 20


class DeliveryBody(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    namespace: str
    queue: str
    message_id: str
    lease_id: str


class GiveBackRequest(BaseModel):
    deliveries: list[DeliveryBody]


class GiveBackAnswer(BaseModel):
    given_back: int


class PassingDeliveries:
    """Reads multipart as `framing` writes it: meta and payload in turn, a delimiter behind each.

    The sender of a payload cannot guess the boundary, so the delimiter ends a part wherever it stands.
    """

    def __init__(self, boundary: bytes) -> None:
        self._mark = b"\r\n--" + boundary
        self._rest = b"\r\n"  # In front of the first delimiter there is no line end.
        self._parts = 0
        self._meta = bytearray()
        self._whole: list[dict[str, object]] = []
        self._open: dict[str, object] | None = None

    def feed(self, piece: bytes) -> None:
        data = self._rest + piece
        start = 0
        while (end := data.find(self._mark, start)) >= 0:
            self._take(data[start:end])
            self._end_part()
            start = end + len(self._mark)
        keep = max(start, len(data) - len(self._mark) + 1)
        self._take(data[start:keep])
        self._rest = data[keep:]

    def _take(self, content: bytes) -> None:
        if self._parts % 2 == 1 and len(self._meta) + len(content) <= _META_BYTES_MAX:
            self._meta += content

    def _end_part(self) -> None:
        if self._parts % 2 == 1:
            self._open = _delivery(bytes(self._meta))
            self._meta.clear()
        elif self._open is not None:
            self._whole.append(self._open)
            self._open = None
        self._parts += 1

    def handed_over(self) -> None:
        """A delivery counts once the delimiter behind its payload was taken, as in the service."""
        self._whole.clear()

    def request(self) -> bytes | None:
        left = self._whole if self._open is None else [*self._whole, self._open]
        return to_json({"deliveries": left}) if left else None


def _delivery(part: bytes) -> dict[str, object] | None:
    try:
        message = from_json(part.partition(b"\r\n\r\n")[2])["message"]
        return {name: message[name] for name in DeliveryBody.model_fields}
    except (ValueError, KeyError, TypeError):
        return None  # It was cut off; its service has not sent it, and gives it back itself.


def passing_deliveries(headers: Sequence[Header]) -> PassingDeliveries:
    content_type = next((value for name, value in headers if name == CONTENT_TYPE), b"")
    return PassingDeliveries(content_type.partition(b"boundary=")[2])


UNDO_DELIVERY: Final = Undo(GIVE_BACK_PATH, passing_deliveries)


class GiveBackRoutes:
    """For processes of the plane. `service` is set while the store is open."""

    service: QueueService

    def __init__(self) -> None:
        self.router = ExpressRouter(tags=("internal",), permission=Permission.INTERNAL)
        self.router.add(
            GIVE_BACK_PATH, self.give_back, request_model=GiveBackRequest, response_model=GiveBackAnswer
        )

    async def give_back(self, request: Request, body: GiveBackRequest) -> Answer:
        for one in body.deliveries:
            address = QueueAddress(one.namespace, one.queue)
            await self.service.give_back_unsent(address, one.message_id, one.lease_id)
        return json_answer({"given_back": len(body.deliveries)})
