"""A JSON text opened along the paths that are wanted: all else stays a run of bytes, as it was spelled."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import cast

from holdfast.lql.document.value import NESTING_MAX, encode_text
from holdfast.lql.errors import InvalidDocument
from holdfast.lql.mutation.wanted import Wanted

Raw = bytes | memoryview


@dataclass(slots=True, eq=False)
class Slot:
    """A member or an element that a mutation may touch. `spelled_key` is the key with its quotes."""

    owner: "OpenObject | OpenArray | None"
    key: str
    spelled_key: Raw
    value: "Node"


@dataclass(slots=True, eq=False)
class OpenObject:
    """Members in order: runs of untouched ones, and slots. Only slots that are in `slots` still count."""

    parts: list[Raw | Slot] = field(default_factory=list)
    slots: dict[str, Slot] = field(default_factory=dict)

    def put(self, key: str, value: "Node", spelled_key: Raw | None = None) -> Slot:
        slot = Slot(self, key, encode_text(key) if spelled_key is None else spelled_key, value)
        self.parts.append(slot)
        self.slots[key] = slot
        return slot

    def remove(self, slot: Slot) -> None:
        if self.slots.get(slot.key) is slot:
            del self.slots[slot.key]


@dataclass(slots=True, eq=False)
class OpenArray:
    """Elements, all of them slots."""

    slots: list[Slot] = field(default_factory=list)


Node = Raw | OpenObject | OpenArray

_SPACE = rb"[ \t\r\n]*+"
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_FLAT = rb'[^\[\]{}"]++|' + _STRING


def _containers(levels: int) -> bytes:
    """A container with at most this many levels below it; deeper ones are followed bracket by bracket."""
    inner = _FLAT + (b"|" + _containers(levels - 1) if levels else b"")
    return rb"[\[{](?:" + inner + rb")*+[\]}]"


_RUN = re.compile(rb"(?:" + _FLAT + b"|" + _containers(3) + rb")*+", re.DOTALL)
_FLAT_RUN = re.compile(rb"(?:" + _FLAT + rb")*+", re.DOTALL)
# Looking ahead pays where containers are shallow; deep inside it would fail at every bracket.
_LOOK_AHEAD_DEPTH_MAX = 8
_SCALAR = re.compile(_STRING + rb"|[^\s,\[\]{}\":]++", re.DOTALL)
_KEY = re.compile(_SPACE + rb"(" + _STRING + rb")" + _SPACE + rb":" + _SPACE, re.DOTALL)
_BLANK = re.compile(_SPACE)
# Below this size, and with more keys than this, making a pattern costs more than it saves.
_BULK_BYTES_MIN = 65_536
_BULK_KEYS_MAX = 64
_AFTER = re.compile(_SPACE + rb"([,}\]])" + _SPACE)


@dataclass(slots=True)
class _Frame:
    """A container being read: what is wanted of it, and the run of unwanted members that is still growing."""

    node: OpenObject | OpenArray
    wanted: Wanted
    keys: frozenset[str] | None
    is_done: bool
    bulk: re.Pattern[bytes] | None = None
    run_start: int = -1
    run_end: int = -1


def open_outline(data: bytes, wanted: Wanted) -> OpenObject:
    """The root object, opened as far as wanted; nothing and null are an empty object. Raises InvalidDocument.

    What is skipped is not checked: the store holds valid JSON only.
    """
    return _Reader(data).root(wanted)


class _Reader:
    """Reads a document once, from front to back, without calling itself."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._view = memoryview(data)
        self._at = 0

    def root(self, wanted: Wanted) -> OpenObject:
        self._skip_blank()
        if self._byte() in (b"", b"n") and self._data[self._at :].rstrip() in (b"", b"null"):
            return OpenObject()
        if self._byte() != b"{":
            raise InvalidDocument("the document is not an object", hint="only objects can be changed")
        root = OpenObject()
        self._read(self._enter(root, wanted))
        self._skip_blank()
        if self._at < len(self._data):
            raise self._broken()
        return root

    def _read(self, outermost: _Frame) -> None:
        frames = [outermost]
        while frames:
            frame = frames[-1]
            if frame.is_done:
                _flush(frame, self._view)
                frames.pop()
                if frames:
                    self._after_item(frames[-1])
                continue
            inner = self._item(frame)
            if inner is None:
                self._after_item(frame)
            else:
                frames.append(inner)
                if len(frames) > NESTING_MAX:
                    raise InvalidDocument(f"the document is nested more than {NESTING_MAX} deep")

    def _enter(self, node: OpenObject | OpenArray, wanted: Wanted) -> _Frame:
        self._at += 1
        self._skip_blank()
        is_empty = self._byte() == _end_of(node)
        self._at += is_empty
        bulk = None
        if (
            wanted.keys is not None
            and len(self._data) >= _BULK_BYTES_MIN
            and len(wanted.keys) <= _BULK_KEYS_MAX
        ):
            bulk = _unwanted_members(wanted.keys)
        return _Frame(node, wanted, wanted.keys, is_done=is_empty, bulk=bulk)

    def _item(self, frame: _Frame) -> _Frame | None:
        """Reads a member or an element; the frame of its value if that is opened."""
        if isinstance(frame.node, OpenArray):
            slot = Slot(frame.node, "", b"", b"")
            frame.node.slots.append(slot)
            return self._value(slot, frame.wanted.element)
        if frame.bulk is not None:
            self._skip_members(frame, frame.bulk)
        start = self._at
        match = _KEY.match(self._data, start)
        if match is None:
            raise self._broken()
        self._at = match.end()
        key = _key_text(match[1])
        if frame.keys is not None and key not in frame.keys:
            self._skip_value()
            frame.run_start = start if frame.run_start < 0 else frame.run_start
            frame.run_end = self._at
            return None
        _flush(frame, self._view)
        slot = frame.node.put(key, b"", self._view[match.start(1) : match.end(1)])
        return self._value(slot, frame.wanted.member(key))

    def _skip_members(self, frame: _Frame, bulk: re.Pattern[bytes]) -> None:
        end = cast(re.Match[bytes], bulk.match(self._data, self._at)).end()
        if end > self._at:
            frame.run_start = self._at if frame.run_start < 0 else frame.run_start
            frame.run_end = self._data.rindex(b",", self._at, end)
            self._at = end

    def _value(self, slot: Slot, wanted: Wanted) -> _Frame | None:
        first = self._byte()
        if (first == b"{" and wanted.opens_object) or (first == b"[" and wanted.opens_array):
            node = OpenObject() if first == b"{" else OpenArray()
            slot.value = node
            return self._enter(node, wanted)
        start = self._at
        self._skip_value()
        slot.value = self._view[start : self._at]
        return None

    def _after_item(self, frame: _Frame) -> None:
        match = _AFTER.match(self._data, self._at)
        if match is None or match[1] not in (b",", _end_of(frame.node)):
            raise self._broken()
        # What follows a bracket that closes this container belongs to the one around it.
        frame.is_done = match[1] != b","
        self._at = match.end(1) if frame.is_done else match.end()

    def _skip_value(self) -> None:
        if self._byte() not in (b"{", b"["):
            match = _SCALAR.match(self._data, self._at)
            if match is None:
                raise self._broken()
            self._at = match.end()
            return
        depth = 0
        while True:
            bracket = self._byte()
            if bracket in (b"{", b"["):
                depth += 1
            elif bracket in (b"}", b"]"):
                depth -= 1
            else:
                raise self._broken()
            self._at += 1
            if depth == 0:
                return
            if depth > NESTING_MAX:
                raise InvalidDocument(f"the document is nested more than {NESTING_MAX} deep")
            run = _RUN if depth <= _LOOK_AHEAD_DEPTH_MAX else _FLAT_RUN
            self._at = cast(re.Match[bytes], run.match(self._data, self._at)).end()

    def _byte(self) -> bytes:
        return self._data[self._at : self._at + 1]

    def _skip_blank(self) -> None:
        self._at = cast(re.Match[bytes], _BLANK.match(self._data, self._at)).end()

    def _broken(self) -> InvalidDocument:
        return InvalidDocument(f"the document is no JSON: unexpected byte {self._at + 1}")


@lru_cache(maxsize=64)
def _unwanted_members(keys: frozenset[str]) -> re.Pattern[bytes]:
    """Members with other keys, each with its comma; what is spelled with a backslash or nested deep is left to look at."""
    names = b"|".join(re.escape(key.encode("utf-8", "replace")) for key in sorted(keys))
    key = rb'"(?!(?:' + names + rb')")[^"\\]*+"'
    value = rb"(?:" + _STRING + rb"|[^\s,\[\]{}\":]++|" + _containers(3) + rb")"
    return re.compile(
        rb"(?:" + key + _SPACE + rb":" + _SPACE + value + _SPACE + rb"," + _SPACE + rb")*+", re.DOTALL
    )


def _end_of(node: OpenObject | OpenArray) -> bytes:
    return b"}" if isinstance(node, OpenObject) else b"]"


def _flush(frame: _Frame, view: memoryview) -> None:
    if isinstance(frame.node, OpenObject) and frame.run_start >= 0:
        frame.node.parts.append(view[frame.run_start : frame.run_end])
        frame.run_start = -1


def _key_text(spelled: bytes) -> str:
    if b"\\" not in spelled:
        return spelled[1:-1].decode("utf-8", "replace")
    try:
        return cast(str, json.loads(spelled))
    except ValueError as error:
        raise InvalidDocument(f"the document is no JSON: {error}") from None


def write_outline(root: OpenObject) -> bytes:
    """The document as compact JSON: runs as they were, slots as they are now."""
    return b"".join(_pieces(root))


def _pieces(root: OpenObject) -> Iterator[Raw]:
    stack: list[tuple[Iterator[Raw | Slot], bytes]] = []
    node: Node | None = root
    is_first = True
    while True:
        if isinstance(node, OpenObject | OpenArray):
            yield b"{" if isinstance(node, OpenObject) else b"["
            stack.append((_current_parts(node), _end_of(node)))
            is_first = True
        elif node is not None:
            yield node
        if not stack:
            return
        parts, end = stack[-1]
        part = next(parts, None)
        if part is None:
            yield end
            stack.pop()
            node, is_first = None, False
            continue
        if not is_first:
            yield b","
        is_first = False
        if isinstance(part, Slot):
            if isinstance(part.owner, OpenObject):
                yield part.spelled_key
                yield b":"
            node = part.value
        else:
            node = part


def _current_parts(node: OpenObject | OpenArray) -> Iterator[Raw | Slot]:
    if isinstance(node, OpenArray):
        return iter(node.slots)
    slots = node.slots
    return (part for part in node.parts if not isinstance(part, Slot) or slots.get(part.key) is part)
