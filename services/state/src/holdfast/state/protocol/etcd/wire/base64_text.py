"""Base64 of either alphabet, padded or not; what is neither is refused in the words of Go's decoder."""

import re
from binascii import a2b_base64
from typing import Final

from holdfast.state.layer.kv.errors import KvInvalid

_OTHERS: Final = str.maketrans("-_", "+/", "\r\n")
_PADDING: Final = ord("=")

_foreign = re.compile(rb"[^A-Za-z0-9+/_-]").match
_breaks = re.compile(rb"[\r\n]*").match
_whole_groups = re.compile(rb"[\r\n]*(?:(?:[A-Za-z0-9+/_-][\r\n]*){4})*+").match
_is_data = re.compile(r"[A-Za-z0-9+/]*").fullmatch


def decoded(text: str) -> bytes:
    if not len(text) & 3:
        try:
            data = a2b_base64(text, strict_mode=True)
        except ValueError:
            return _other(text)
        if (
            len(text) // 4 * 3 - len(data) < 3
        ):  # However strict, it lets more padding pass than there is room for.
            return data
    return _other(text)


def _other(text: str) -> bytes:
    plain = text.translate(_OTHERS)
    data = plain.rstrip("=")
    missing = -len(data) % 4
    if len(plain) - len(data) not in (0, missing) or missing == 3 or not _is_data(data):
        raise KvInvalid(f"illegal base64 data at input byte {_bad_at(text.encode('utf-8', 'surrogatepass'))}")
    return a2b_base64(data + "=" * missing)


def _bad_at(text: bytes) -> int:
    """Of the first byte that fits nowhere, or of the last group if that is too short."""
    position = _after(_whole_groups(text), 0)
    for index in range(4):
        if position == len(text):
            return position - index
        if not _foreign(text, position):
            position = _after(_breaks(text, position + 1), position)
        elif text[position] != _PADDING or index < 2:
            return position
        else:
            return _bad_after_padding(text, position + 1, index)
    raise AssertionError("four letters are a whole group")


def _bad_after_padding(text: bytes, position: int, index: int) -> int:
    if index == 2:
        position = _after(_breaks(text, position), position)
        if position == len(text):
            return position
        if text[position] != _PADDING:
            return position - 1
        position += 1
    return _after(_breaks(text, position), position)


def _after(matched: re.Match[bytes] | None, position: int) -> int:
    return position if matched is None else matched.end()
