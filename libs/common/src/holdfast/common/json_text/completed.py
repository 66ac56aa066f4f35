"""Checks and compacts the items of a piece of JSON by a parser in C: the piece is completed to a document of its own.

The open containers are opened before it and all that are open after it are closed again. Like the passes of `bulk` this only
ever says yes: the parser refuses lone surrogates and deep nesting, which are valid, and takes what is not UTF-8.
"""

from typing import Final

import msgspec

OPENED_MAX: Final = 200
"""Each piece opens them anew."""
LIKELY_BYTES_MIN: Final = 1024
MISSES_SKIPPED_MAX: Final = 64
_COMMA_TRIES: Final = 8

_SPACES: Final = (b" ", b"\n", b"\r", b"\t")
_check: Final = msgspec.json.Decoder(msgspec.Raw).decode
"""Goes over the text and copies nothing."""
_NO_SKELETON: Final = bytes(set(range(256)) - set(b'[]{}",'))
_OUTER: Final = {ord("["): b"[", ord("{"): b'{"":'}
_FILLER: Final = {ord("["): b",0", ord("{"): b',"":0'}
_CLOSING: Final = {ord("["): b"]", ord("{"): b"}"}
_OPENING: Final = {ord("]"): ord("["), ord("}"): ord("{")}


def compacted(text: bytes) -> bytes | None:
    """A document that is valid but for its encoding, compacted; None if it is in any doubt."""
    try:
        if any(space in text for space in _SPACES):
            return msgspec.json.format(text, indent=-1)
        _check(text)
        return text
    except (msgspec.DecodeError, RecursionError):
        return None


def compact_items(
    text: bytes, begun: bytes, opened: bytearray, likely: "LikelyCut | None" = None
) -> tuple[bytes, int] | None:
    """Compact as far as the last comma between items; also says how many bytes that took.

    `begun` opens the innermost container as far as the text goes on with it, `opened` has the open containers and is
    brought up to date. None, and nothing changed, when the text up to such a comma is not beyond doubt.
    """
    if len(opened) > OPENED_MAX:
        return None
    skeleton = _without_escapes(text).translate(None, _NO_SKELETON)
    last = _last_outside(skeleton, b",")
    if last < 0:
        return None
    left_open = _left_open(skeleton[:last], opened)
    if not left_open:
        return None
    taken = _compact_to(text, _place(text, skeleton, last), begun, opened, left_open)
    if taken is not None and likely is not None and likely.is_next:
        likely.learn(text, skeleton, last, opened, left_open)
    if taken is not None:
        opened[:] = left_open
    return taken


class LikelyCut:
    """Where the pieces of a text whose items are alike can be cut: nothing is looked for but the same two bytes again.

    Only the parser says whether that was right, because the text before such a cut and what closes the containers that
    are open there are a document in no other case: within a string, the comma that follows the cut leaves it open, or
    its end is followed by a quote.
    """

    __slots__ = ("_ending", "_left_open", "_skip", "_skipped")

    def __init__(self) -> None:
        self._ending = b""
        self._left_open = b""
        self._skip = 0
        self._skipped = 0
        """Since the last guess that was wrong: each next one costs twice as many pieces without."""

    def compact_items(self, text: bytes, begun: bytes, opened: bytearray) -> tuple[bytes, int] | None:
        """As `compact_items`, with a guess in place of a look at the text."""
        if not self._ending or len(text) < LIKELY_BYTES_MIN or len(opened) > OPENED_MAX:
            return None
        if not self.is_next:
            self._skipped += 1
            return None
        at = text.rfind(self._ending)
        if at < len(text) // 2:
            return None
        taken = _compact_to(text, at + len(self._ending) - 1, begun, opened, self._left_open)
        self._skipped = 0
        if taken is None:
            self._skip = min(MISSES_SKIPPED_MAX, 2 * self._skip + 1)
        else:
            self._skip //= 2
            opened[:] = self._left_open
        return taken

    @property
    def is_next(self) -> bool:
        """Whether the next piece is to be cut by a guess."""
        return self._skipped >= self._skip

    def learn(self, text: bytes, skeleton: bytes, last: int, opened: bytearray, left_open: bytearray) -> None:
        """What a look has found. The end of a container is the better place: its items need not be as many each time."""
        for ending in (b"},", b"],"):
            at = _last_outside(skeleton, ending)
            found = None if at < 0 else _left_open(skeleton[: at + 1], opened)
            if found and _is_at(text, skeleton, at + 1, ending):
                self._ending, self._left_open = ending, bytes(found)
                return
        is_string = _is_at(text, skeleton, last, b'",')
        self._ending, self._left_open = b'",' if is_string else b",", bytes(left_open)


def _compact_to(
    text: bytes, end: int, begun: bytes, opened: bytearray, left_open: bytes | bytearray
) -> tuple[bytes, int] | None:
    """Compact as far as the comma at `end`, if it is one between items of these containers."""
    before = b"".join([_OUTER[container] for container in opened[:-1]]) + begun
    filler = _FILLER[left_open[-1]]
    after = filler + b"".join([_CLOSING[container] for container in reversed(left_open)])
    tight = compacted(b"".join([before, memoryview(text)[:end], after]))
    if tight is None:
        return None
    return tight[len(before) : len(tight) - len(after) + 1], end + 1


def _place(text: bytes, skeleton: bytes, comma: int) -> int:
    """Where in the text the comma stands that has this place in its skeleton."""
    end = len(text)
    for _ in range(skeleton.count(b",", comma)):
        end = text.rindex(b",", 0, end)
    return end


def _is_at(text: bytes, skeleton: bytes, comma: int, ending: bytes) -> bool:
    return text.endswith(ending, 0, _place(text, skeleton, comma) + 1)


def _last_outside(skeleton: bytes, mark: bytes) -> int:
    """Where the last mark outside of strings stands; -1 if a few looks do not find it."""
    end = len(skeleton)
    for _ in range(_COMMA_TRIES):
        at = skeleton.rfind(mark, 0, end)
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
