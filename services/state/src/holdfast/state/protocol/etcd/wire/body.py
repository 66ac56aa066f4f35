"""The bodies of requests as JSON objects, whatever their content type says."""

from json import JSONDecoder
from typing import Any, Final, NoReturn

from pydantic_core import from_json

from holdfast.state.layer.kv.errors import KvInvalid, KvRequestTooLarge
from holdfast.state.protocol.etcd.wire.errors import WrongType
from holdfast.state.protocol.etcd.wire.syntax import fault_of

BODY_BYTES_MAX: Final = 2 * 1024 * 1024 + 64 * 1024
"""A request of `REQUEST_BYTES_MAX` in base64, and the JSON around it."""
REQUEST_BYTES_MAX: Final = 1536 * 1024
"""What a request may carry when it is decoded."""
STREAM_BYTES_MAX: Final = 1536 * 1024
STREAM_OBJECTS_MAX: Final = 1024
"""How many requests a stream of them may have."""

_SPACE: Final = b" \t\r\n"
_KINDS: Final[dict[type, str]] = {
    str: "string",
    bool: "bool",
    int: "number",
    float: "number",
    list: "array",
    dict: "object",
}


def object_of(body: bytes) -> dict[str, Any]:
    """The object of a request that has one."""
    if not body:
        return {}
    try:
        value: Any = from_json(body, allow_inf_nan=False, cache_strings="keys")
    except ValueError as error:
        if not body.strip(_SPACE):
            return {}
        raise KvInvalid(fault_of(body, error)) from error
    if type(value) is not dict:
        raise wrong_type(value, "map[string]json.RawMessage")
    return value


def objects_of(body: bytes) -> list[dict[str, Any]]:
    """The objects of a stream of requests: one after the other, with or without blanks between them."""
    try:
        return [object_of(body)]
    except WrongType:
        raise
    except KvInvalid:
        return _split(body)


def _split(body: bytes) -> list[dict[str, Any]]:
    text = body.decode("utf-8", "replace").strip(" \t\r\n")
    found: list[dict[str, Any]] = []
    position = 0
    while position < len(text):
        if len(found) == STREAM_OBJECTS_MAX:
            raise KvRequestTooLarge
        try:
            value, position = _decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            raise KvInvalid(fault_of(text[position:].encode("utf-8", "replace"), error)) from error
        if type(value) is not dict:
            raise wrong_type(value, "map[string]json.RawMessage")
        found.append(value)
        while text[position : position + 1] in (" ", "\t", "\r", "\n"):
            position += 1
    return found


def wrong_type(value: object, go_type: str) -> WrongType:
    """In the words of Go's encoding/json."""
    kind = _KINDS.get(type(value), "value")
    number = f" {_shown(value)}" if kind == "number" and not go_type.startswith(("[]", "map")) else ""
    return WrongType(f"json: cannot unmarshal {kind}{number} into Go value of type {go_type}")


def _shown(value: object) -> str:
    """A number may have thousands of digits."""
    if isinstance(value, int) and abs(value) >= 1 << 128:
        return "out of range"
    return str(value)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_decoder: Final = JSONDecoder(parse_constant=_no_constant)
