"""Conformance vectors: one JSON object per line, and whether this implementation does what it says."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from holdfast.lql.document.value import Value, parse_document
from holdfast.lql.errors import LqlError
from holdfast.lql.mutation.application import apply_mutations
from holdfast.lql.mutation.text import Mode
from holdfast.lql.selector.evaluation import matches
from holdfast.lql.selector.json import Json, selector_from_json, selector_to_json
from holdfast.lql.selector.text import parse_selector
from holdfast.lql.selector.tree import Selector
from holdfast.lql.selector.url import selector_from_parameters
from holdfast.lql.temporal import parse_temporal

_TERMS = ("eq", "contains", "icontains", "prefix", "iprefix", "range", "date", "in")
_WITH_VALUE = ("eq", "contains", "icontains", "prefix", "iprefix")

Vector = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one vector came to; `problem` is empty if it passed."""

    id: str
    problem: str = ""


def run_vector(line: str) -> Outcome:
    """Runs one line of a vector file of any of the three kinds."""
    try:
        vector = cast(Vector, json.loads(line))
        name = str(vector["id"])
    except (ValueError, KeyError, TypeError) as error:
        return Outcome("?", f"no vector: {error!r}")
    try:
        return Outcome(name, _kind(vector)(vector, line))
    except LqlError as error:
        return Outcome(name, f"refused: {error.detail}")
    except (KeyError, TypeError, ValueError) as error:
        return Outcome(name, f"no vector: {error!r}")


def _kind(vector: Vector) -> Callable[[Vector, str], str]:
    if "mutations" in vector:
        return _mutation_problem
    return _match_problem if "matches" in vector else _selector_problem


def _selector_problem(vector: Vector, line: str) -> str:
    try:
        selector = _read(vector)
    except LqlError as error:
        return "" if vector.get("error") else f"refused: {error.detail}"
    found = canonical(selector_to_json(selector))
    if vector.get("error"):
        return f"accepted as {json.dumps(found)}"
    wanted = canonical(vector["ast"])
    return "" if found == wanted else f"is {json.dumps(found)}, not {json.dumps(wanted)}"


def _read(vector: Vector) -> Selector:
    if "params" in vector:
        return selector_from_parameters((name, value) for name, value in vector["params"])
    return parse_selector(vector["text"])


def _match_problem(vector: Vector, line: str) -> str:
    # Read once more with the spelling of its numbers kept.
    document = cast(dict[str, Value], parse_document(line))["doc"]
    selectors = [selector_from_json(vector["ast"])]
    if "selector" in vector:
        selectors.append(parse_selector(vector["selector"]))
    found = [matches(selector, document, now_ns=0) for selector in selectors]
    return "" if set(found) == {vector["matches"]} else f"matches: {found}, not {vector['matches']}"


def _mutation_problem(vector: Vector, line: str) -> str:
    document = json.dumps(vector["doc"], ensure_ascii=False).encode()
    now = parse_temporal(vector["now"])
    if now is None:
        raise ValueError("now is no time")
    try:
        changed = apply_mutations(
            document, vector["mutations"], now_ns=now.instant_ns, mode=Mode(vector.get("mode", "exprs"))
        )
    except LqlError as error:
        return "" if vector.get("error") else f"refused: {error.detail}"
    found = json.loads(changed)
    if vector.get("error"):
        return f"gave {json.dumps(found)}"
    return (
        ""
        if same_json(found, vector["result"])
        else f"gave {json.dumps(found)}, not {json.dumps(vector['result'])}"
    )


def same_json(first: Any, second: Any) -> bool:
    """Equal as JSON values: 1 and 1.0 are, 1 and true are not."""
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(same_json(first[key], second[key]) for key in first)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(same_json, first, second))
    return bool(first == second)


def canonical(node: Json) -> Json:
    """A form in which selectors are equal that differ in the order of clauses and the merging of nodes."""
    items = sorted({json.dumps(item, sort_keys=True) for item in _conjuncts(node)})
    parts = [cast(Json, json.loads(item)) for item in items]
    if len(parts) <= 1:
        return parts[0] if parts else {}
    return {"and": parts}


def _conjuncts(node: Json) -> list[Json]:
    members = cast(dict[str, Any], node)
    found: list[Json] = [
        _canonical_term(name, members[name]) for name in _TERMS if members.get(name) is not None
    ]
    if members.get("exists"):
        found.append({"exists": members["exists"]})
    if members.get("not") is not None:
        found.append({"not": canonical(members["not"])})
    if members.get("or"):
        children = [canonical(child) for child in members["or"]]
        found.extend(_conjuncts(children[0]) if len(children) == 1 else [{"or": _sorted(children)}])
    for child in members.get("and") or []:
        found.extend(_conjuncts(child))
    return found


def _sorted(children: Sequence[Json]) -> list[Json]:
    return sorted(children, key=lambda child: json.dumps(child, sort_keys=True))


def _canonical_term(name: str, given: dict[str, Any]) -> Json:
    term = dict(given)
    if name in _WITH_VALUE and "value" not in term and "any" not in term:
        term["value"] = ""
    if name == "range":
        term = {key: float(value) if isinstance(value, int | float) else value for key, value in term.items()}
    return {name: term}
