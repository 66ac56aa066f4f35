"""From the assignments of one term (`field=/a`, `value=x`) to the term, with every rule about its keys."""

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.lql.errors import InvalidSelector, LqlError, quoted
from holdfast.lql.fragment import Fragment, is_quoted, unquoted
from holdfast.lql.number import is_infinite, parse_bound, parse_float, plain_decimal
from holdfast.lql.pointer import Pointer, selector_pointer
from holdfast.lql.selector.tree import (
    BOUND_NAMES,
    CONTAINS_ANY_MAX,
    DATE_NAMES,
    SINCE_WORDS,
    Bound,
    Date,
    Exists,
    In,
    Range,
    Term,
    Text,
    TextOperator,
)
from holdfast.lql.temporal import parse_temporal

_PLAIN = {"f": "field", "v": "value", "field": "field", "value": "value"}
_ANY = {"a": "any", "any": "any"}
_CASE = {"ic": "ignoreCase", "ignorecase": "ignoreCase"}
_FIELD = {"f": "field", "field": "field"}

KEYS: Mapping[str, Mapping[str, str]] = {
    "eq": _PLAIN,
    "prefix": _PLAIN,
    "iprefix": _PLAIN | _CASE,
    "contains": _PLAIN | _ANY | _CASE,
    "icontains": _PLAIN | _ANY | _CASE,
    "range": _FIELD | {name: name for name in BOUND_NAMES},
    "in": _FIELD | _ANY,
    "exists": {},
    "date": _PLAIN | {name: name for name in DATE_NAMES} | {"a": "after", "b": "before"},
}
"""What a body may assign, by leaf: the key as written, in lower case, and the member it stands for."""

_BOOLEANS = {"true": True, "t": True, "false": False, "f": False}
_CONFLICTS = (("after", "gt"), ("before", "lt"), ("since", "after"), ("since", "gt"), ("since", "gte"))


@dataclass(slots=True)
class Assignments:
    """What was assigned to one term so far, as written; `items` holds the list elements given one by one."""

    leaf: str
    position: int
    members: dict[str, Fragment]
    items: dict[int, Fragment]

    def assign(self, key: str, value: Fragment, key_position: int) -> None:
        name = KEYS[self.leaf].get(unquoted(key.strip()).strip().lower())
        if name is None:
            raise InvalidSelector(
                f"{self.leaf} has no key {quoted(key)}",
                position=key_position,
                hint=f"it takes {', '.join(dict.fromkeys(KEYS[self.leaf].values()))}",
            )
        self._put(name, value)

    def point(self, value: Fragment) -> None:
        """The pointer of `exists`, which has no key."""
        self._put("field", value)

    def item(self, index: int, value: Fragment) -> None:
        if self.items.setdefault(index, value).text != value.text:
            raise self._conflict("any", value)

    def _put(self, name: str, value: Fragment) -> None:
        if unquoted(self.members.setdefault(name, value).text) != unquoted(value.text):
            raise self._conflict(name, value)

    def _conflict(self, name: str, value: Fragment) -> InvalidSelector:
        return InvalidSelector(
            f"{self.leaf}.{name} has a conflict: it is given twice with different values",
            position=value.position,
            hint="give each term its own place, like and.0.eq{…},and.1.eq{…}",
        )

    def finish(self) -> Term:
        """The term, or the reason why there is none."""
        field = self._field()
        if self.leaf == "exists":
            return Exists(field)
        if self.leaf == "range":
            return self._range(field)
        if self.leaf == "in":
            return In(field, self._list(required=True) or ())
        if self.leaf == "date":
            return self._date(field)
        return self._text(field, TextOperator(self.leaf))

    def _field(self) -> Pointer:
        field = self.members.get("field", Fragment("", self.position))
        text = unquoted(field.text)
        if not text.strip():
            raise InvalidSelector(
                f"{self.leaf} needs a field",
                position=field.position,
                hint=f"like {self.leaf}{{field=/status,…}}",
            )
        return selector_pointer(text, field.position)

    def _text(self, field: Pointer, operator: TextOperator) -> Text:
        ignore_case = self._flag("ignoreCase")
        value, listed = self.members.get("value"), self._list(required=False)
        if value is not None and listed is not None:
            raise InvalidSelector(
                f"{self.leaf} has both value and any", position=value.position, hint="give one of them"
            )
        if listed is not None:
            return Text(operator, field, listed, ignore_case, is_list=True)
        if value is None:
            is_path_assertion = operator in (TextOperator.CONTAINS, TextOperator.ICONTAINS)
            return Text(operator, field, None if is_path_assertion else ("",), ignore_case)
        return Text(operator, field, (typed_text(value),), ignore_case)

    def _flag(self, name: str) -> bool:
        given = self.members.get(name)
        if given is None:
            return False
        flag = _BOOLEANS.get(unquoted(given.text).lower())
        if flag is None:
            raise InvalidSelector(
                f"{name} is {quoted(given.text)}", position=given.position, hint="write true or false"
            )
        return flag

    def _list(self, *, required: bool) -> tuple[str, ...] | None:
        joined = self.members.get("any")
        if joined is None and not self.items:
            if required:
                raise InvalidSelector(
                    f"{self.leaf} needs any", position=self.position, hint="like any=red|blue"
                )
            return None
        if joined is not None and self.items:
            raise self._conflict("any", joined)
        items = [self.items[index] for index in sorted(self.items)] if joined is None else _split_list(joined)
        if not items:
            raise InvalidSelector(
                f"{self.leaf}.any names nothing", position=self.position, hint="like any=red|blue"
            )
        if self.leaf != "in" and len(items) > CONTAINS_ANY_MAX:
            raise InvalidSelector(
                f"{self.leaf}.any has more than {CONTAINS_ANY_MAX} items", position=self.position
            )
        return tuple(typed_text(item) for item in items)

    def _range(self, field: Pointer) -> Range:
        given = [(name, self.members[name]) for name in BOUND_NAMES if name in self.members]
        if not given:
            raise InvalidSelector(
                "range needs a bound", position=self.position, hint="like range{field=/n,gte=1}"
            )
        bounds = tuple((name, range_bound(value)) for name, value in given)
        check_range(bounds, InvalidSelector, self.position)
        return Range(field, bounds)

    def _date(self, field: Pointer) -> Date:
        bounds = tuple(
            (name, unquoted(self.members[name].text)) for name in DATE_NAMES if name in self.members
        )
        check_date(bounds, InvalidSelector, self.position)
        return Date(field, bounds)


def _split_list(joined: Fragment) -> list[Fragment]:
    texts = (item.strip() for item in unquoted(joined.text).split("|"))
    return [Fragment(text, joined.position) for text in texts if text]


def typed_text(value: Fragment) -> str:
    """The text a value is compared as: numbers and booleans in their canonical spelling, also within quotes."""
    text = unquoted(value.text)
    number = parse_float(text)
    if number is not None:
        return plain_decimal(number)
    if is_infinite(text):
        raise InvalidSelector(f"{quoted(text)} is a number that JSON cannot carry", position=value.position)
    return text.lower() if text.lower() in ("true", "false") else text


def range_bound(value: Fragment, *, may_quote_number: bool = True) -> Bound:
    """A number, or a date or time."""
    text = unquoted(value.text)
    number = parse_bound(text) if may_quote_number or not is_quoted(value.text) else None
    if number is not None:
        return number
    if parse_temporal(text) is None:
        raise InvalidSelector(
            f"{quoted(value.text)} is neither a number nor a date",
            position=value.position,
            hint="compare with something like 10, 2.5, 2025-01-31 or 2025-01-31T10:00:00Z",
        )
    return text


def check_range(
    bounds: tuple[tuple[str, Bound], ...], error: type[LqlError], position: int | None = None
) -> None:
    kinds = {isinstance(bound, str) for _, bound in bounds}
    if len(kinds) > 1:
        raise error("range has numbers and dates as bounds", position=position, hint="use one kind")


def check_date(
    bounds: tuple[tuple[str, str], ...], error: type[LqlError], position: int | None = None
) -> None:
    """Literals are dates or times, and no two bounds say the same thing."""
    names = {name for name, _ in bounds}
    if not names:
        raise error("date needs something to compare with", position=position, hint="like after=2025-01-01")
    for first, second in _CONFLICTS:
        if first in names and second in names:
            raise error(f"date has both {first} and {second}", position=position, hint="give one of them")
    for name, literal in bounds:
        if parse_temporal(literal) is None and not (name == "since" and literal.lower() in SINCE_WORDS):
            raise error(
                f"date.{name} is {quoted(literal)}",
                position=position,
                hint="write 2025-01-31 or 2025-01-31T10:00:00Z"
                + (" or yesterday" if name == "since" else ""),
            )
