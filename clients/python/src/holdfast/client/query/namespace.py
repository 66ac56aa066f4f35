"""How a namespace is searched: its configuration, and the flush of its index. It does no I/O."""

from dataclasses import dataclass
from typing import Any, Literal

from holdfast.client.wire import request
from holdfast.client.wire.call import Answer
from holdfast.client.wire.flow import Channel, Flow

FlushMode = Literal["wait", "async"]


@dataclass(frozen=True, slots=True)
class NamespaceConfig:
    """Which engine answers queries; `etag` is empty until a configuration was stored."""

    namespace: str
    preferred_engine: str
    fallback_engine: str
    etag: str
    raw: dict[str, Any]

    @classmethod
    def read(cls, answer: Answer) -> "NamespaceConfig":
        members = answer.members()
        query = members.inner("query")
        return cls(
            namespace=members.text("namespace"),
            preferred_engine=query.text("preferred_engine"),
            fallback_engine=query.text("fallback_engine"),
            etag=answer.etag,
            raw=dict(members.raw),
        )


@dataclass(frozen=True, slots=True)
class IndexFlush:
    """What became of a flush."""

    namespace: str
    mode: str
    is_accepted: bool
    is_flushed: bool
    is_pending: bool
    index_seq: int
    flush_id: str
    raw: dict[str, Any]

    @classmethod
    def read(cls, answer: Answer) -> "IndexFlush":
        members = answer.members()
        return cls(
            namespace=members.text("namespace"),
            mode=members.text("mode"),
            is_accepted=members.boolean("accepted"),
            is_flushed=members.boolean("flushed"),
            is_pending=members.boolean("pending"),
            index_seq=members.number("index_seq"),
            flush_id=members.text("flush_id"),
            raw=dict(members.raw),
        )


@dataclass(frozen=True, slots=True)
class Namespace:
    """Calls on one namespace as a whole."""

    channel: Channel
    name: str
    correlation_id: str

    def config(self) -> Flow[NamespaceConfig]:
        answer = yield from self.channel.send(request.namespace_config(self.name, self.correlation_id))
        return NamespaceConfig.read(answer.expect(200))

    def set_config(
        self, *, preferred_engine: str | None, fallback_engine: str | None, if_match: str | None
    ) -> Flow[NamespaceConfig]:
        engines = {"preferred_engine": preferred_engine, "fallback_engine": fallback_engine}
        call = request.set_namespace_config(
            self.name,
            {name: engine for name, engine in engines.items() if engine},
            if_match=if_match or "",
            correlation_id=self.correlation_id,
        )
        answer = yield from self.channel.send(call)
        return NamespaceConfig.read(answer.expect(200))

    def flush_index(self, mode: FlushMode) -> Flow[IndexFlush]:
        answer = yield from self.channel.send(request.flush_index(self.name, mode, self.correlation_id))
        return IndexFlush.read(answer.expect(200, 202))
