"""Which parts of a document a list of mutations can reach: a tree of their segments, walked along the document."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from holdfast.lql.pointer import Segment, Wildcard

_OF_MEMBERS = (Wildcard.MEMBERS, Wildcard.CHILDREN)
_OF_ELEMENTS = (Wildcard.ELEMENTS, Wildcard.CHILDREN)


@dataclass(slots=True, eq=False)
class Step:
    """A place in the tree of segments. A recursive one, reached by `...`, holds for all values below as well."""

    children: dict[Segment, "Step"] = field(default_factory=dict)
    is_recursive: bool = False

    def add(self, segments: Iterable[Segment]) -> None:
        step = self
        for segment in segments:
            is_recursive = segment is Wildcard.DESCENDANTS
            step = step.children.setdefault(segment, Step(is_recursive=is_recursive))


class Wanted:
    """What is wanted at one value: the steps that lead here."""

    def __init__(self, steps: tuple[Step, ...]) -> None:
        self.steps = steps
        self._named = frozenset(key for step in steps for key in step.children if isinstance(key, str))
        self._members: dict[str | None, Wanted] = {}

    @cached_property
    def opens_object(self) -> bool:
        return any(step.children or step.is_recursive for step in self.steps)

    @cached_property
    def opens_array(self) -> bool:
        return any(step.is_recursive or any(w in step.children for w in _OF_ELEMENTS) for step in self.steps)

    @cached_property
    def keys(self) -> frozenset[str] | None:
        """The members that are wanted; None if all are."""
        if any(step.is_recursive or any(w in step.children for w in _OF_MEMBERS) for step in self.steps):
            return None
        return self._named

    def member(self, key: str) -> "Wanted":
        """What is wanted of a member. All members that no path names are alike."""
        name = key if key in self._named else None
        found = self._members.get(name)
        if found is None:
            named: tuple[Segment, ...] = () if name is None else (name,)
            found = self._members[name] = self._below((*named, *_OF_MEMBERS))
        return found

    @cached_property
    def element(self) -> "Wanted":
        return self._below(_OF_ELEMENTS)

    def _below(self, segments: tuple[Segment, ...]) -> "Wanted":
        found = [
            step.children[segment] for step in self.steps for segment in segments if segment in step.children
        ]
        return _closed([*found, *(step for step in self.steps if step.is_recursive)])


def wanted_by(paths: Iterable[tuple[Segment, ...]]) -> Wanted:
    """What is wanted at the root."""
    root = Step()
    for segments in paths:
        root.add(segments)
    return _closed([root])


def _closed(steps: list[Step]) -> Wanted:
    """With the steps that `...` adds at the same value; each once."""
    found: dict[int, Step] = {}
    while steps:
        step = steps.pop()
        if id(step) not in found:
            found[id(step)] = step
            below = step.children.get(Wildcard.DESCENDANTS)
            if below is not None:
                steps.append(below)
    return Wanted(tuple(found.values()))
