"""Checks and compacts the items of a piece of JSON by a parser in C: the piece is completed to a document of its own.

The open containers are opened before it and all that are open after it are closed again. Like the passes of `bulk` this only
ever says yes: the parser refuses lone surrogates and deep nesting, which are valid, and takes what is not UTF-8.
"""

from typing import Final

import msgspec

OPENED_MAX: Final = 200
"""Each piece opens them anew."""
_COMMA_TRIES: Final = 8

_NO_SKELETON: Final = bytes(set(range(256)) - set(b'[]{}",'))
_OUTER: Final = {ord("["): b"[", ord("{"): b'{"":'}
_FILLER: Final = {ord("["): b",0", ord("{"): b',"":0'}
_CLOSING: Final = {ord("["): b"]", ord("{"): b"}"}
_OPENING: Final = {ord("]"): ord("["), ord("}"): ord("{")}


def compacted(text: bytes) -> bytes | None:
    """A document that is valid but for its encoding, compacted; None if it is in any doubt."""
    try:
        return msgspec.json.format(text, indent=-1)
    except (msgspec.DecodeError, RecursionError):
        return None


def compact_items(text: bytes, begun: bytes, opened: bytearray) -> tuple[bytes, int] | None:
    """Compact as far as the last comma between items; also says how many bytes that took.

    `begun` opens the innermost container as far as the text goes on with it, `opened` has the open containers and is
    brought up to date. None, and nothing changed, when the text up to such a comma is not beyond doubt.
    """
    if len(opened) > OPENED_MAX:
        return None
    skeleton = _without_escapes(text).translate(None, _NO_SKELETON)
    last = _last_comma(skeleton)
    if last < 0:
        return None
    end = len(text)
    for _ in range(skeleton.count(b",", last)):
        end = text.rindex(b",", 0, end)
    left_open = _left_open(skeleton[:last], opened)
    if not left_open:
        return None
    before = b"".join([_OUTER[container] for container in opened[:-1]]) + begun
    filler = _FILLER[left_open[-1]]
    after = filler + b"".join([_CLOSING[container] for container in reversed(left_open)])
    tight = compacted(b"".join([before, memoryview(text)[:end], after]))
    if tight is None:
        return None
    opened[:] = left_open
    return tight[len(before) : len(tight) - len(after) + 1], end + 1


def _last_comma(skeleton: bytes) -> int:
    """Where the last comma outside of strings stands; -1 if a few looks do not find it."""
    end = len(skeleton)
    for _ in range(_COMMA_TRIES):
        at = skeleton.rfind(b",", 0, end)
        if at < 0 or skeleton.count(b'"', 0, at) % 2 == 0:
            return at
        end = skeleton.rfind(b'"', 0, at)
    return -1


def _left_open(skeleton: bytes, opened: bytearray) -> bytearray | None:
    """The containers that are open after this; None if they do not pair."""
    brackets = skeleton.translate(None, b",").replace(b'""', b"")
    if b'"' in brackets:  # There are brackets within strings.
        brackets = b"".join(skeleton.split(b'"')[::2]).translate(None, b",")
    size = 2 * len(brackets)
    while len(brackets) * 4 < size * 3:
        size = len(brackets)
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    left_open = bytearray(opened)
    for bracket in brackets:
        if bracket in _OUTER:
            left_open.append(bracket)
        elif not left_open or left_open.pop() != _OPENING[bracket]:
            return None
    return left_open


def _without_escapes(text: bytes) -> bytes:
    """As long as before, and every quote begins or ends a string."""
    if b"\\" not in text:
        return text
    return text.replace(b"\\\\", b"  ").replace(b'\\"', b"  ")
