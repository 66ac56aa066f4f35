"""Members of requests as values: a reader takes what JSON has, and refuses what its field cannot be."""

import re
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Final, Generic, TypeVar

from holdfast.state.layer.kv.errors import KvInvalid
from holdfast.state.protocol.etcd.wire.base64_text import decoded
from holdfast.state.protocol.etcd.wire.body import wrong_type
from holdfast.state.protocol.etcd.wire.errors import WrongType

Values = TypeVar("Values", bound=tuple[Any, ...])
Item = TypeVar("Item")
Named = TypeVar("Named", bound=IntEnum)
Reader = Callable[[Any], Any]

_INT64_MAX: Final = (1 << 63) - 1
_INT64_MIN: Final = -(1 << 63)
_EXACT_FLOAT_MAX: Final = float(1 << 53)

_is_int64_text = re.compile(r"-?(?:0|[1-9][0-9]{0,18})").fullmatch


def read_bytes(value: Any) -> bytes:
    if type(value) is not str:
        raise wrong_type(value, "[]uint8")
    return decoded(value)


def read_int64(value: Any) -> int:
    """A number, or a text of digits; never by way of a float, which would lose the end of a lease's id."""
    kind = type(value)
    if kind is int and _INT64_MIN <= value <= _INT64_MAX:
        return int(value)
    if kind is str:
        return _int64_of(value)
    if kind is float and value.is_integer() and -_EXACT_FLOAT_MAX <= value <= _EXACT_FLOAT_MAX:
        return int(value)  # Some clients know no other numbers.
    raise wrong_type(value, "int64")


def _int64_of(text: str) -> int:
    if not _is_int64_text(text):
        raise KvInvalid(f"invalid int64: {text[:40]!r}")
    number = int(text)
    if not _INT64_MIN <= number <= _INT64_MAX:
        raise WrongType(f"json: cannot unmarshal number {text} into Go value of type int64")
    return number


def read_bool(value: Any) -> bool:
    if type(value) is not bool:
        raise wrong_type(value, "bool")
    return value


def read_object(value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise wrong_type(value, "map[string]json.RawMessage")
    return value


def enum_reader(members: type[Named], go_name: str) -> Callable[[Any], Named]:
    """By name or by number."""
    known: dict[Any, Named] = {}
    for member in members:
        known[member.name] = known[int(member)] = member

    def read(value: Any) -> Named:
        if type(value) is not str and type(value) is not int:  # True would pass for 1.
            raise wrong_type(value, "int32")
        found = known.get(value)
        if found is None:
            raise KvInvalid(f"unknown value {str(value)[:40]!r} for enum {go_name}")
        return found

    return read


def list_reader(
    read: Callable[[Any], Item], items_max: int, too_many: Callable[[], KvInvalid]
) -> Callable[[Any], tuple[Item, ...]]:
    """Of items that `read` takes; as elsewhere null stands for what has no members."""

    def read_list(value: Any) -> tuple[Item, ...]:
        if type(value) is not list:
            raise wrong_type(value, "[]json.RawMessage")
        if len(value) > items_max:
            raise too_many()
        return tuple([read({} if item is None else item) for item in value])

    return read_list


class Message(Generic[Values]):
    """A request whose members are the fields of a named tuple; those that it does not know are ignored."""

    def __init__(self, kind: type[Values], readers: Mapping[str, Reader]) -> None:
        """`readers` by the name of the field on the wire, in the order of the tuple."""
        defaults: dict[str, Any] = kind._field_defaults  # type: ignore[attr-defined]  # of a named tuple
        fields: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]
        self._kind = kind
        self._defaults = [defaults.get(field, b"") for field in fields]
        self._fields: dict[str, tuple[int, Reader]] = {}
        for index, (name, read) in enumerate(readers.items()):
            self._fields[name] = self._fields[_lower_camel(name)] = index, read

    def of(self, members: Any) -> Values:
        if type(members) is not dict:
            raise wrong_type(members, "map[string]json.RawMessage")
        values = self._defaults.copy()
        for name, value in members.items():
            field = self._fields.get(name)
            if field is not None and value is not None:
                values[field[0]] = field[1](value)
        return tuple.__new__(self._kind, values)


def _lower_camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
