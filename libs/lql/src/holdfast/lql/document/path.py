"""Which values of a document a pointer selects."""

from collections.abc import Sequence

from holdfast.lql.document.value import Value
from holdfast.lql.pointer import Segment, Wildcard, array_index


def select(document: Value, segments: Sequence[Segment]) -> Sequence[Value]:
    """Every value at the end of the segments. A value may come once even if several ways lead to it."""
    value = document
    for at, segment in enumerate(segments):
        if isinstance(segment, Wildcard):
            return _select_many(value, segments[at:])
        found = _child(value, segment)
        if not found:
            return ()
        value = found[0]
    return (value,)


def _child(value: Value, segment: str) -> tuple[Value, ...]:
    if isinstance(value, dict):
        return (value[segment],) if segment in value else ()
    if isinstance(value, list):
        index = array_index(segment)
        return (value[index],) if index is not None and index < len(value) else ()
    return ()


def _select_many(value: Value, segments: Sequence[Segment]) -> Sequence[Value]:
    # Without dropping what was reached already, `/.../.../...` would walk the document once per pair of nodes.
    reached: dict[int, Value] = {id(value): value}
    before: Segment | None = None
    for segment in segments:
        if segment is Wildcard.DESCENDANTS:
            reached = reached if before is segment else _with_descendants(reached)
        elif isinstance(segment, str):
            reached = {id(child): child for parent in reached.values() for child in _child(parent, segment)}
        else:
            reached = _all_children(reached, segment)
        before = segment
    return tuple(reached.values())


def _all_children(reached: dict[int, Value], wildcard: Wildcard) -> dict[int, Value]:
    found: dict[int, Value] = {}
    for value in reached.values():
        if isinstance(value, dict) and wildcard is not Wildcard.ELEMENTS:
            found.update((id(child), child) for child in value.values())
        elif isinstance(value, list) and wildcard is not Wildcard.MEMBERS:
            found.update((id(child), child) for child in value)
    return found


def _with_descendants(reached: dict[int, Value]) -> dict[int, Value]:
    """The values and all below them, each once."""
    found: dict[int, Value] = {}
    stack = list(reached.values())
    while stack:
        value = stack.pop()
        if id(value) in found:
            continue
        found[id(value)] = value
        if isinstance(value, dict):
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)
    return found
