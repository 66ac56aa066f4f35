"""Mutations applied to a document: bytes in, bytes out, what is not touched stays as it was spelled."""

import math
import re
from collections.abc import Iterator, Sequence

from holdfast.lql.errors import MutationFailed, quoted
from holdfast.lql.mutation.outline import Node, OpenArray, OpenObject, Raw, Slot, open_outline, write_outline
from holdfast.lql.mutation.text import Increment, Mode, Mutation, ReadFile, Remove, Set, parse_mutations
from holdfast.lql.mutation.wanted import wanted_by
from holdfast.lql.number import json_number
from holdfast.lql.pointer import Segment, Wildcard, escaped

_INTEGER = re.compile(rb"-?[0-9]{1,1000}")
_NUMBER = re.compile(rb"-?[0-9][0-9.eE+-]*+")
_WHOLE_WITHIN = 1e-9


def apply_mutations(
    document: bytes,
    expressions: Sequence[str],
    *,
    now_ns: int,
    mode: Mode = Mode.EXPRESSIONS,
    read_file: ReadFile | None = None,
) -> bytes:
    """The changed document. All expressions are read before the first is applied, and one failure fails all.

    Raises InvalidMutations, MutationFailed and InvalidDocument.
    """
    return apply(document, parse_mutations(expressions, now_ns=now_ns, mode=mode, read_file=read_file))


def apply(document: bytes, mutations: Sequence[Mutation]) -> bytes:
    """As apply_mutations, for mutations that were read before."""
    root = open_outline(document, wanted_by(mutation.segments for mutation in mutations))
    for mutation in mutations:
        if any(isinstance(segment, Wildcard) for segment in mutation.segments):
            _apply_to_all(root, mutation)
        else:
            _apply_to_one(root, mutation)
    return write_outline(root)


def _apply_to_one(root: OpenObject, mutation: Mutation) -> None:
    *path, key = (str(segment) for segment in mutation.segments)
    parent = root
    for name in path:
        slot = parent.slots.get(name)
        if slot is not None and isinstance(slot.value, OpenObject):
            parent = slot.value
            continue
        if isinstance(mutation, Remove):
            return
        inner = OpenObject()
        if slot is None:
            parent.put(name, inner)
        else:
            slot.value = inner
        parent = inner
    _change(parent, key, mutation)


def _change(parent: OpenObject, key: str, mutation: Mutation) -> None:
    slot = parent.slots.get(key)
    if slot is not None:
        _change_slot(slot, mutation)
    elif isinstance(mutation, Set):
        parent.put(key, mutation.encoded)
    elif isinstance(mutation, Increment):
        parent.put(key, json_number(mutation.delta).encode())


def _change_slot(slot: Slot, mutation: Mutation) -> None:
    if isinstance(mutation, Set):
        slot.value = mutation.encoded
    elif isinstance(mutation, Increment):
        slot.value = _sum(slot.value, mutation)
    elif isinstance(slot.owner, OpenObject):
        slot.owner.remove(slot)
    else:
        # Taking an element away would move the others: a later path of the same call would mean another one.
        slot.value = b"null"


def _sum(value: Node, mutation: Increment) -> Raw:
    if isinstance(value, OpenObject | OpenArray) or _NUMBER.fullmatch(value) is None:
        raise MutationFailed(
            f"{_shown(mutation.segments)} is not a number", hint="only numbers can be counted"
        )
    literal = bytes(value)
    if isinstance(mutation.delta, int) and _INTEGER.fullmatch(literal):
        return str(int(literal) + mutation.delta).encode()
    try:
        total = float(literal) + mutation.delta
    except (OverflowError, ValueError):
        total = math.inf
    if not math.isfinite(total):
        raise MutationFailed(f"{_shown(mutation.segments)} would be a number that JSON cannot carry")
    whole = round(total)
    return (
        str(whole) if abs(total - whole) < _WHOLE_WITHIN and abs(total) < 1e21 else json_number(total)
    ).encode()


def _shown(segments: Sequence[Segment]) -> str:
    parts = (segment.value if isinstance(segment, Wildcard) else escaped(segment) for segment in segments)
    return quoted("/" + "/".join(parts))


def _apply_to_all(root: OpenObject, mutation: Mutation) -> None:
    """Every existing match; nothing is created."""
    top = Slot(None, "", b"", root)
    reached: dict[int, Slot] = {id(top): top}
    for segment in mutation.segments:
        found: dict[int, Slot] = {}
        for slot in reached.values():
            for child in _children(slot, segment, found):
                found[id(child)] = child
        reached = found
    for slot in reached.values():
        if slot is not top:
            _change_slot(slot, mutation)


def _children(slot: Slot, segment: Segment, found: dict[int, Slot]) -> Iterator[Slot]:
    value = slot.value
    if segment is Wildcard.DESCENDANTS:
        yield from _with_descendants(slot, found)
    elif isinstance(value, OpenObject):
        if isinstance(segment, str):
            yield from (value.slots[segment],) if segment in value.slots else ()
        elif segment is not Wildcard.ELEMENTS:
            yield from value.slots.values()
    elif isinstance(value, OpenArray) and segment in (Wildcard.ELEMENTS, Wildcard.CHILDREN):
        yield from value.slots


def _with_descendants(slot: Slot, found: dict[int, Slot]) -> Iterator[Slot]:
    stack = [slot]
    while stack:
        slot = stack.pop()
        if id(slot) in found:
            continue
        if isinstance(slot.value, OpenObject):
            stack.extend(slot.value.slots.values())
        elif isinstance(slot.value, OpenArray):
            stack.extend(slot.value.slots)
        yield slot
