"""The selector as URL parameters: `eq.field=/status&eq.value=open`, or a whole term as the name of a parameter."""

from collections.abc import Iterable

from holdfast.lql.errors import InvalidSelector, quoted
from holdfast.lql.fragment import Fragment
from holdfast.lql.number import parse_integer
from holdfast.lql.selector.draft import INDEX_MAX, ClausePath, Collector, read_clause_path
from holdfast.lql.selector.text import add_clause, is_term
from holdfast.lql.selector.tree import Selector


def selector_from_parameters(parameters: Iterable[tuple[str, str]]) -> Selector:
    """The selector of decoded name and value pairs; other parameters are passed over. Raises InvalidSelector."""
    collector = Collector()
    for name, value in parameters:
        if is_term(name):
            _add(collector, name.strip(), value.strip())
    return collector.selector()


def _add(collector: Collector, name: str, value: str) -> None:
    if "{" in name:
        if value:
            raise InvalidSelector(
                f"the parameter {quoted(name)} has a value", hint="a whole term stands in the name"
            )
        add_clause(collector, Fragment(name))
        return
    place = read_clause_path(Fragment(name))
    leaf, *keys = place.rest
    node = collector.node(place.wrappers, is_shared=True)
    if leaf.text.lower() == "exists" and not keys and not value:
        return  # As in text: without a pointer it opens its place and constrains nothing.
    term = node.term(leaf.text.lower(), 0)
    if term.leaf == "exists" and not keys:
        term.point(Fragment(value))
    elif len(keys) == 1:
        term.assign(keys[0].text, Fragment(value), keys[0].position)
    else:
        term.item(_list_index(place, name), Fragment(value))


def _list_index(place: ClausePath, name: str) -> int:
    """The number in `in.any.0`, the only place where a key has one."""
    if len(place.rest) == 3 and place.rest[0].text.lower() in ("in", "contains", "icontains"):
        key, index = place.rest[1].text.lower(), parse_integer(place.rest[2].text)
        if key in ("any", "a") and index is not None and 0 <= index <= INDEX_MAX:
            return index
    raise InvalidSelector(f"the parameter {quoted(name)} assigns nothing", hint="like eq.field or in.any.0")
