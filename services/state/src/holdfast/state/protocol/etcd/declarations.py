"""Endpoints of the gateway: each at all prefixes of the API, and at older paths of its own."""

from collections.abc import Mapping
from typing import Final

from holdfast.common.errors import HoldfastError
from holdfast.common.express.message import Answer, RenderedAnswer, Request, render_lines
from holdfast.common.express.route import Handler
from holdfast.common.express.router import ExpressRouter
from holdfast.common.express.traits import ALL_METHODS, READS, Admission, Begins, Duration, Group
from holdfast.common.role import Role
from holdfast.state.layer.kv.errors import KvInvalid
from holdfast.state.protocol.etcd.dialect import ANSWER_LINES, CORS_HEADERS, ETCD, PREFIXES
from holdfast.state.protocol.etcd.wire.body import BODY_BYTES_MAX

LOOKS: Final = Admission(Group.QUERY, Begins.ALWAYS)
WRITES: Final = Admission(Group.LOCK, Begins.ALWAYS)
GOES_ON: Final = Admission(Group.LOCK, Begins.NEVER)
"""What keeps or ends something that was admitted before."""

_PREFLIGHT: Final = RenderedAnswer(204, b"", render_lines(CORS_HEADERS))


class EtcdRouter:
    """Declares endpoints; the documentation has each once."""

    def __init__(self, tag: str) -> None:
        self.router = ExpressRouter(tags=(f"etcd {tag}",), service=Role.STATE, dialect=ETCD)

    def add(
        self,
        path: str,
        handler: Handler,
        *,
        summary: str,
        example: Mapping[str, object],
        aliases: tuple[str, ...] = (),
        errors: tuple[type[HoldfastError], ...] = (),
        admission: Admission | None = None,
        is_repeatable: bool = False,
        duration: Duration = Duration.SHORT,
        body_bytes_max: int = BODY_BYTES_MAX,
    ) -> None:
        """`path` and `aliases` are those below a prefix. Repeatable: its requests do no harm when they arrive twice."""
        for each in (path, *aliases):
            for prefix in PREFIXES:
                self.router.add(
                    prefix + each,
                    handler,
                    errors=(KvInvalid, *errors),
                    summary=summary,
                    request_content={
                        "application/json": {**_schema_of(example), "examples": [dict(example)]}
                    },
                    response_content={"application/json": {"type": "object"}},
                    body_limit_bytes=body_bytes_max,
                    is_parsed_by_handler=True,
                    is_documented=each == path and prefix == PREFIXES[0],
                    admission=admission,
                    repeatable=ALL_METHODS if is_repeatable else READS,
                    duration=duration,
                    streams_lines=duration is Duration.ENDLESS,
                )
                self.router.add(prefix + each, _preflight, methods=("OPTIONS",), is_documented=False)


def answered(body: bytes) -> Answer:
    return RenderedAnswer(200, body, ANSWER_LINES)


def _schema_of(example: object) -> dict[str, object]:
    """What the documentation says of a body, as far as its example tells; other members are ignored or have their defaults."""
    if isinstance(example, Mapping):
        members: Mapping[str, object] = example
        return {"type": "object", "properties": {name: _schema_of(value) for name, value in members.items()}}
    if isinstance(example, list):
        items: list[object] = example
        return {"type": "array", "items": _schema_of(items[0])}
    return {"type": "boolean" if isinstance(example, bool) else "string"}


async def _preflight(request: Request, body: None) -> Answer:
    """What a browser asks before a page of another origin may call."""
    return _PREFLIGHT
