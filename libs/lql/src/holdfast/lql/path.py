"""Which values of a document a pointer selects."""

from collections.abc import Iterable, Iterator, Sequence

from holdfast.lql.document import Value
from holdfast.lql.pointer import Segment, Wildcard, array_index


def select(document: Value, segments: Sequence[Segment]) -> Iterable[Value]:
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


def _select_many(value: Value, segments: Sequence[Segment]) -> Iterable[Value]:
    # Without dropping what was reached already, `/.../.../...` would walk the document once per pair of nodes.
    reached: dict[int, Value] = {id(value): value}
    for segment in segments:
        found: dict[int, Value] = {}
        for parent in reached.values():
            for child in _children(parent, segment, found):
                found[id(child)] = child
        reached = found
    return reached.values()


def _children(value: Value, segment: Segment, found: dict[int, Value]) -> Iterator[Value]:
    if isinstance(segment, str):
        yield from _child(value, segment)
    elif segment is Wildcard.DESCENDANTS:
        yield from _with_descendants(value, found)
    else:
        if isinstance(value, dict) and segment is not Wildcard.ELEMENTS:
            yield from value.values()
        if isinstance(value, list) and segment is not Wildcard.MEMBERS:
            yield from value


def _with_descendants(value: Value, found: dict[int, Value]) -> Iterator[Value]:
    """The value and all below it, leaving out subtrees that another value of the same step has given already."""
    stack = [value]
    while stack:
        value = stack.pop()
        if isinstance(value, dict | list):
            if id(value) in found:
                continue
            stack.extend(value.values() if isinstance(value, dict) else value)
        yield value
