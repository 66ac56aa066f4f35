"""Transactions by name: decided, replayed, listed. It does no I/O."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from holdfast.client.errors import InvalidArgument
from holdfast.client.wire.body import Body
from holdfast.client.wire.call import Answer, Call, Members
from holdfast.client.wire.flow import Channel, Flow
from holdfast.client.wire.request import JSON_TYPE, json_bytes

TxnState = Literal["pending", "commit", "rollback"]


@dataclass(frozen=True, slots=True)
class Participant:
    """A key, or a message as `q/<queue>/msg/<id>`; without a hash it lies on the island that is asked."""

    key: str
    namespace: str = ""
    backend_hash: str = ""
    is_applied: bool = False

    @classmethod
    def parse(cls, text: str) -> "Participant":
        """`[namespace:]key[@hash]`: the last `@` begins the hash, the first `:` ends the namespace."""
        rest, at, backend_hash = text.rpartition("@")
        named = rest if at else text
        namespace, colon, key = named.partition(":")
        key = key if colon else named
        if not key or (at and not backend_hash) or (colon and not namespace):
            raise InvalidArgument(f"{text!r} is no participant: write [namespace:]key[@hash]")
        return cls(key, namespace if colon else "", backend_hash if at else "")

    @classmethod
    def read(cls, members: Members) -> "Participant":
        return cls(
            key=members.text("key"),
            namespace=members.text("namespace"),
            backend_hash=members.text("backend_hash"),
            is_applied=members.boolean("applied"),
        )

    def members(self, namespace: str) -> dict[str, str]:
        named = {"namespace": self.namespace or namespace, "key": self.key}
        return {**named, "backend_hash": self.backend_hash} if self.backend_hash else named


@dataclass(frozen=True, slots=True)
class TxnView:
    """A transaction under way. In doubt: decided, but not applied everywhere yet."""

    txn_id: str
    state: str
    is_in_doubt: bool
    age_s: int
    expires_at_unix: int
    tc_term: int
    participants: list[Participant]
    raw: dict[str, Any] = field(repr=False)

    @classmethod
    def read(cls, members: Members) -> "TxnView":
        return cls(
            txn_id=members.text("txn_id"),
            state=members.text("state"),
            is_in_doubt=members.boolean("in_doubt"),
            age_s=members.number("age_seconds"),
            expires_at_unix=members.number("expires_at_unix"),
            tc_term=members.number("tc_term"),
            participants=[Participant.read(item) for item in members.items("participants")],
            raw=dict(members.raw),
        )


@dataclass(frozen=True, slots=True)
class Transactions:
    """Calls on transactions as a whole."""

    channel: Channel
    namespace: str
    correlation_id: str

    def decide(
        self, txn_id: str, state: TxnState, participants: Sequence[Participant], expires_at_unix: int
    ) -> Flow[str]:
        asked: dict[str, object] = {"txn_id": txn_id, "state": state}
        if participants:
            asked["participants"] = [one.members(self.namespace) for one in participants]
        if expires_at_unix:
            asked["expires_at_unix"] = expires_at_unix
        # What is recorded never changes, so asking twice is asking once.
        answer = yield from self.channel.send(self._call("/v1/txn/decide", asked))
        return _state(answer)

    def replay(self, txn_id: str) -> Flow[str]:
        answer = yield from self.channel.send(self._call("/v1/txn/replay", {"txn_id": txn_id}))
        return _state(answer)

    def list(self, limit: int) -> Flow[list[TxnView]]:
        headers = {"X-Correlation-Id": self.correlation_id}
        call = Call("GET", "/v1/txn/list", {"limit": str(limit)}, headers, is_idempotent=True)
        answer = yield from self.channel.send(call)
        return [TxnView.read(item) for item in answer.expect(200).members().items("transactions")]

    def _call(self, path: str, members: dict[str, object]) -> Call:
        headers = {"X-Correlation-Id": self.correlation_id, "Content-Type": JSON_TYPE}
        return Call("POST", path, {}, headers, Body(json_bytes(members)), is_idempotent=True)


def _state(answer: Answer) -> str:
    return answer.expect(200).members().text("state", is_required=True)
