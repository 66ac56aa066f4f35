"""Tuples as keys: an encoding whose byte order is the order of the tuples.

A tuple is the concatenation of its elements, so a tuple sorts before every longer one that it begins. Each element
opens with a byte that names its kind; kinds sort in the order of this table, for all values (the int 2
sorts before the float 1.0):

| opens with | kind | what follows | order within the kind |
|---|---|---|---|
| 01 | None | nothing | |
| 02, 03 | False, True | nothing | False < True |
| 17 | int below -2^64 | 255 - n, then n bytes of value + 256^n - 1 | numeric |
| 18..1f | negative int of n = 20 - code bytes | n bytes of value + 256^n - 1 | numeric |
| 20 | 0 | nothing | |
| 21..28 | positive int of n = code - 20 bytes | n bytes, big endian | numeric |
| 29 | int from 2^64 on | n, then n bytes, big endian | numeric |
| 30 | float | 8 bytes: IEEE 754, all bits flipped if negative, else the sign bit set | numeric |
| 40 | bytes | the bytes with 00 written as 00 ff, then 00 | bytewise, prefix first |
| 41 | str | its UTF-8, treated like bytes | by code point, prefix first |
| 50 | tuple | its elements, then 00 | element by element, prefix first |

Floats are in total order: -inf < … < -0.0 < 0.0 < … < inf < NaN. The two zeros are different keys; every NaN is
written as the same one. An int has at most 255 bytes, tuples nest at most 16 deep. Each tuple has exactly one
encoding: `unpack` refuses any other spelling of it, so keys and tuples stand one to one.
"""

import math
import struct
from typing import TypeAlias

Element: TypeAlias = "bool | int | float | bytes | str | tuple[Element, ...] | None"

INT_BYTES_MAX = 255
DEPTH_MAX = 16

_NONE, _FALSE, _TRUE = 0x01, 0x02, 0x03
_INT_HUGE_NEGATIVE, _INT_ZERO, _INT_HUGE = 0x17, 0x20, 0x29
_FLOAT, _BYTES, _STR, _TUPLE = 0x30, 0x40, 0x41, 0x50

_DOUBLE = struct.Struct(">d")
_UNSIGNED = struct.Struct(">Q")
_SIGN_BIT = 1 << 63
_ALL_BITS = (1 << 64) - 1
_NAN_ENCODED = b"\xff\xf8\x00\x00\x00\x00\x00\x00"  # The quiet NaN with its sign bit set, above inf.


def pack(elements: tuple[Element, ...]) -> bytes:
    """The key of a tuple. ValueError if an element is too large or nested too deep, TypeError if it is no Element."""
    parts: list[bytes] = []
    for element in elements:
        # The two kinds that nearly every key consists of come first and need no call.
        if type(element) is str and "\0" not in element:
            parts.append(b"A%b\0" % element.encode())
        elif type(element) is int and 0 < element < 256:
            parts.append(_SMALL_INTS[element])
        else:
            _pack_element(element, parts, 0)
    return b"".join(parts)


def unpack(key: bytes) -> tuple[Element, ...]:
    """The tuple of a key. ValueError if `pack` never made this key."""
    elements, end = _unpack_elements(key, 0, 0)
    if end != len(key):
        raise ValueError(f"byte 00 at {end} ends a tuple that was not opened")
    return elements


def prefix_range(elements: tuple[Element, ...]) -> tuple[bytes, bytes]:
    """The range [start, end) of all longer tuples that begin with these elements, and of nothing else."""
    prefix = pack(elements)
    # No element opens with 00 or ff; ff after a string's 00 means that the string goes on, so it is another one.
    return prefix + b"\x00", prefix + b"\xff"


def next_key(key: bytes) -> bytes:
    """The smallest key above this one: where a range goes on after it."""
    return key + b"\x00"


def _pack_element(element: Element, parts: list[bytes], depth: int) -> None:
    if element is None:
        parts.append(b"\x01")
    elif element is False:
        parts.append(b"\x02")
    elif element is True:
        parts.append(b"\x03")
    elif isinstance(element, str):
        parts.append(b"A%b\0" % element.encode().replace(b"\0", b"\0\xff"))
    elif isinstance(element, int):
        parts.append(_pack_int(element))
    elif isinstance(element, bytes):
        parts.append(b"@%b\0" % element.replace(b"\0", b"\0\xff"))
    elif isinstance(element, float):
        parts.append(_pack_float(element))
    elif isinstance(element, tuple):  # pyright: ignore[reportUnnecessaryIsInstance]  # Callers may be untyped.
        if depth == DEPTH_MAX:
            raise ValueError(f"tuples nest deeper than {DEPTH_MAX}")
        parts.append(b"P")
        for child in element:
            _pack_element(child, parts, depth + 1)
        parts.append(b"\0")
    else:
        raise TypeError(f"a key element can't be of type {type(element).__name__}")


def _pack_int(value: int) -> bytes:
    size = (abs(value).bit_length() + 7) // 8
    if size > INT_BYTES_MAX:
        raise ValueError(f"an int in a key has at most {INT_BYTES_MAX} bytes")
    if value >= 0:
        head = bytes((_INT_ZERO + size,)) if size <= 8 else bytes((_INT_HUGE, size))
        return head + value.to_bytes(size, "big")
    head = bytes((_INT_ZERO - size,)) if size <= 8 else bytes((_INT_HUGE_NEGATIVE, INT_BYTES_MAX - size))
    return head + (value + (1 << 8 * size) - 1).to_bytes(size, "big")


def _pack_float(value: float) -> bytes:
    if math.isnan(value):
        return b"0" + _NAN_ENCODED
    bits: int = _UNSIGNED.unpack(_DOUBLE.pack(value))[0]
    return b"0" + _UNSIGNED.pack(bits ^ _ALL_BITS if bits & _SIGN_BIT else bits | _SIGN_BIT)


def _unpack_elements(key: bytes, position: int, depth: int) -> tuple[tuple[Element, ...], int]:
    """The elements from `position` to the 00 that ends them, or to the end of the key; and where that is."""
    elements: list[Element] = []
    end = len(key)
    while position < end:
        code = key[position]
        if code == 0:
            break
        position += 1
        if code in _STRINGS:
            raw, position = _unpack_string(key, position)
            elements.append(raw.decode() if code == _STR else raw)
        elif _INT_HUGE_NEGATIVE <= code <= _INT_HUGE:
            number, position = _unpack_int(key, code, position)
            elements.append(number)
        elif code == _FLOAT:
            elements.append(_unpack_float(_take(key, position, 8)))
            position += 8
        elif code == _TUPLE:
            if depth == DEPTH_MAX:
                raise ValueError(f"tuples nest deeper than {DEPTH_MAX}")
            nested, position = _unpack_elements(key, position, depth + 1)
            if position == end:
                raise ValueError("the key ends within a tuple")
            elements.append(nested)
            position += 1
        elif code in _CONSTANTS:
            elements.append(_CONSTANTS[code])
        else:
            raise ValueError(f"byte {code:02x} at {position - 1} opens no element")
    return tuple(elements), position


def _unpack_string(key: bytes, start: int) -> tuple[bytes, int]:
    end = key.find(0, start)
    if end >= 0 and key[end + 1 : end + 2] != b"\xff":
        return key[start:end], end + 1
    while end >= 0 and key[end + 1 : end + 2] == b"\xff":
        end = key.find(0, end + 1)
    if end < 0:
        raise ValueError("the key ends within a string")
    return key[start:end].replace(b"\0\xff", b"\0"), end + 1


def _unpack_int(key: bytes, code: int, position: int) -> tuple[int, int]:
    is_negative = code < _INT_ZERO
    if code in (_INT_HUGE, _INT_HUGE_NEGATIVE):
        size = _take(key, position, 1)[0]
        size = INT_BYTES_MAX - size if is_negative else size
        position += 1
        if size <= 8:
            raise ValueError("an int of at most 8 bytes is written in the long form")
    else:
        size = abs(code - _INT_ZERO)
    number = int.from_bytes(_take(key, position, size), "big")
    if is_negative:
        number -= (1 << 8 * size) - 1
    if (abs(number).bit_length() + 7) // 8 != size:
        raise ValueError("an int is written with more bytes than it needs")
    return number, position + size


def _unpack_float(raw: bytes) -> float:
    encoded: int = _UNSIGNED.unpack(raw)[0]
    bits = encoded & ~_SIGN_BIT if encoded & _SIGN_BIT else encoded ^ _ALL_BITS
    value: float = _DOUBLE.unpack(_UNSIGNED.pack(bits))[0]
    if math.isnan(value) and raw != _NAN_ENCODED:
        raise ValueError("a NaN is written in another way than the one agreed on")
    return value


def _take(key: bytes, position: int, size: int) -> bytes:
    taken = key[position : position + size]
    if len(taken) < size:
        raise ValueError("the key ends within an element")
    return taken


_STRINGS = frozenset((_STR, _BYTES))
_CONSTANTS: dict[int, Element] = {_NONE: None, _FALSE: False, _TRUE: True}
_SMALL_INTS = [_pack_int(value) for value in range(256)]
