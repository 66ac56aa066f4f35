"""What a query asks for: body and URL read together, refused in the order that clients rely on."""

from collections.abc import Mapping
from typing import Any, NamedTuple, cast
from urllib.parse import parse_qsl

from pydantic_core import from_json

from holdfast.common.errors import InvalidBody
from holdfast.common.express.message import Request
from holdfast.common.fields import namespace_of, parse_int64
from holdfast.lql.errors import InvalidSelector
from holdfast.lql.selector.json import selector_from_json, selector_from_json_text
from holdfast.lql.selector.tree import MATCH_ALL, Selector, is_match_all
from holdfast.lql.selector.url import selector_from_parameters
from holdfast.state.layer.errors import (
    InvalidEngine,
    InvalidFields,
    InvalidRefresh,
    InvalidReturn,
)
from holdfast.state.layer.query.engine import Engine
from holdfast.state.layer.query.request import QueryRequest

LIMIT_DEFAULT = 100
LIMIT_MAX = 1000
_WAIT_FOR = frozenset(("", "wait_for", "wait-for"))
_DOCUMENTS = frozenset(("documents", "document", "docs"))
_ENGINES: Mapping[str, Engine | None] = {"": None, "auto": None, "index": Engine.INDEX, "scan": Engine.SCAN}


class _Body(NamedTuple):
    namespace: str
    selector: Selector
    invalid_selector: InvalidSelector | None
    limit: int
    cursor: str
    returns: bool | None


def read_query(request: Request, namespace_default: str) -> QueryRequest:
    body = _read_body(request.body)
    selector = _selector(request, body)
    namespace = namespace_of(_text(request, "namespace") or body.namespace, namespace_default)
    _check_fields(_text(request, "fields"))
    engine = _engine(_text(request, "engine").lower())
    returns = _returns(_text(request, "return"))
    if _text(request, "refresh").lower() not in _WAIT_FOR:
        raise InvalidRefresh("refresh is wait_for, or left out")
    limit = parse_int64(_text(request, "limit"))
    return QueryRequest(
        namespace,
        selector,
        _bounded(body.limit if limit is None else limit),
        _text(request, "cursor") or body.cursor,
        engine,
        bool(body.returns if returns is None else returns),
    )


def _read_body(body: bytes) -> _Body:
    members = _members(body)
    selector: Selector = MATCH_ALL
    invalid: InvalidSelector | None = None
    try:
        selector = selector_from_json(members.get("selector"))
    except (
        InvalidSelector
    ) as error:  # A pointer that is none: refused in its place, and only if nothing replaces it.
        invalid = error
    if not isinstance(members.get("fields", {}), dict | None):
        raise InvalidBody("fields: not an object")
    limit = members.get("limit") or 0
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise InvalidBody("limit: not an integer")
    namespace, cursor = _member_text(members, "namespace"), _member_text(members, "cursor")
    return _Body(namespace, selector, invalid, limit, cursor, _returns(_member_text(members, "return")))


def _members(body: bytes) -> dict[str, Any]:
    """Members by lower-case name: clients may spell them as they like."""
    if not body.strip():
        return {}
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidBody(f"the body is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidBody("the body is not an object")
    return {key.lower(): member for key, member in cast(dict[str, Any], value).items()}


def _member_text(members: Mapping[str, Any], name: str) -> str:
    value = members.get(name) or ""
    if not isinstance(value, str):
        raise InvalidBody(f"{name}: not a string")
    return value.strip()


def _text(request: Request, name: str) -> str:
    return (request.query(name) or "").strip()


def _selector(request: Request, body: _Body) -> Selector:
    """The one of the URL replaces that of the body; the URL's parameters count if there is no other."""
    text = _text(request, "selector")
    if text:
        return selector_from_json_text(text)
    if body.invalid_selector is not None:
        raise body.invalid_selector
    if not is_match_all(body.selector) or not request.query_string:
        return body.selector
    return selector_from_parameters(parse_qsl(request.query_string.decode("latin-1"), keep_blank_values=True))


def _check_fields(text: str) -> None:
    if not text:
        return
    try:
        value = from_json(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise InvalidFields("fields is a JSON object")


def _engine(name: str) -> Engine | None:
    if name not in _ENGINES:
        raise InvalidEngine(f"engine {name[:50]!r} is none of auto, index, scan")
    return _ENGINES[name]


def _returns(name: str) -> bool | None:
    """Whether documents are asked for; None: nothing is said about it."""
    word = name.lower()
    if word and word != "keys" and word not in _DOCUMENTS:
        raise InvalidReturn(f"return {name[:50]!r} is neither keys nor documents")
    return word in _DOCUMENTS if word else None


def _bounded(limit: int) -> int:
    return LIMIT_DEFAULT if limit <= 0 else min(limit, LIMIT_MAX)
