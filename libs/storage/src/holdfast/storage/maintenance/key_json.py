"""Keys as JSON: a tuple as an array that any JSON tool carries unharmed, anything else as hex.

str, bool, None and small ints stand for themselves, a nested tuple is an array. The rest is an object with one
member: `{"bytes": hex}`, `{"float": text}`, and `{"int": text}` for ints that other tools would round.
"""

from typing import cast

from holdfast.storage.keys import Element, pack, unpack

_INT_EXACT_MAX = (1 << 53) - 1  # What a tool that reads numbers as doubles keeps.


def key_to_json(key: bytes) -> dict[str, object]:
    """`{"key": [...]}`, or `{"key_hex": "..."}` for a key that is no tuple."""
    try:
        return {"key": [_to_json(element) for element in unpack(key)]}
    except ValueError:
        return {"key_hex": key.hex()}


def key_from_json(members: dict[str, object]) -> bytes:
    """The key again; ValueError if it is written in any other way."""
    if "key_hex" in members:
        return bytes.fromhex(_text(members["key_hex"]))
    elements = members.get("key")
    if not isinstance(elements, list):
        raise ValueError("a record has a key, an array, or a key_hex")
    return pack(tuple(_from_json(element) for element in cast("list[object]", elements)))


def _to_json(element: Element) -> object:
    if isinstance(element, bytes):
        return {"bytes": element.hex()}
    if isinstance(element, float):
        return {"float": repr(element)}
    if isinstance(element, tuple):
        return [_to_json(child) for child in element]
    if isinstance(element, int) and abs(element) > _INT_EXACT_MAX:
        return {"int": hex(element)}
    return element


def _from_json(value: object) -> Element:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, list):
        return tuple(_from_json(child) for child in cast("list[object]", value))
    if not isinstance(value, dict) or len(cast("dict[str, object]", value)) != 1:
        raise ValueError("a key holds something that is no key element")
    [(kind, text)] = cast("dict[str, object]", value).items()
    if kind == "bytes":
        return bytes.fromhex(_text(text))
    if kind == "float":
        return float(_text(text))
    if kind == "int":
        return int(_text(text), 16)
    raise ValueError(f"a key holds an element of the unknown kind {kind[:20]!r}")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("a key holds something that is no key element")
    return value
