"""Reads that need no lease, and those that do, of documents and attachments, as flows."""

from holdfast.client.errors import InvalidArgument
from holdfast.client.session.document import Attachment, Description, State
from holdfast.client.wire import request
from holdfast.client.wire.call import Answer
from holdfast.client.wire.flow import Channel, Flow


class Reading:
    """Reads of one key: with a lease's headers what its holder sees, with none what any client sees."""

    def __init__(
        self, channel: Channel, namespace: str, key: str, headers: dict[str, str], *, is_public: bool
    ) -> None:
        self._channel = channel
        self._namespace = namespace
        self._key = key
        self._headers = headers
        self._is_public = is_public

    def document(self, *, bytes_max: int | None) -> Flow[Answer]:
        """The answer of a get, 204 if there is no document; without a limit it stays open to be read."""
        call = request.get(self._namespace, self._key, self._headers, is_public=self._is_public)
        if bytes_max is None:
            call.is_stream = True
        else:
            call.answer_bytes_max = bytes_max
        answer = yield from self._channel.send(call)
        return answer.expect(200, 204)

    def get(self, *, bytes_max: int) -> Flow[State | None]:
        answer = yield from self.document(bytes_max=bytes_max)
        return state_of(answer)

    def describe(self) -> Flow[Description]:
        answer = yield from self._channel.send(request.describe(self._namespace, self._key, self._headers))
        return Description.read(answer.expect(200))

    def list_attachments(self) -> Flow[list[Attachment]]:
        call = request.list_attachments(self._namespace, self._key, self._headers, is_public=self._is_public)
        answer = yield from self._channel.send(call)
        return [Attachment.from_members(item) for item in answer.expect(200).members().items("attachments")]

    def open_attachment(self, *, name: str, id: str) -> Flow[Answer]:
        """The open answer of a download."""
        if not name and not id:
            raise InvalidArgument("name the attachment by its name or its id")
        call = request.get_attachment(
            self._namespace, self._key, self._headers, name=name, id=id, is_public=self._is_public
        )
        answer = yield from self._channel.send(call)
        return answer.expect(200)


def state_of(answer: Answer) -> State | None:
    """The document in an answer that was read whole."""
    return None if answer.status == 204 else State(answer.body, answer.key_version or 0, answer.etag)
