"""What a pointer selects in one document, and the forms in which terms compare it, each made at most once."""

from collections.abc import Callable, Sequence
from decimal import Decimal
from enum import Enum
from typing import Any

from holdfast.lql.document.path import select
from holdfast.lql.document.value import Number, Value
from holdfast.lql.number import exact, exact_bound, exact_text, plain_decimal
from holdfast.lql.pointer import Segment
from holdfast.lql.temporal import Temporal, parse_temporal


def text_form(value: Value) -> str | None:
    """The text that eq, prefix, in and contains compare; null, objects and arrays have none."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return plain_decimal(value) if isinstance(value, float) else None


def folded_form(value: Value) -> str | None:
    """The text that icontains and iprefix compare."""
    text = text_form(value)
    return None if text is None else text.lower()


def numeric_form(value: Value) -> Decimal | None:
    """The number that range compares: of numbers and of texts that read as one, every digit counts."""
    if isinstance(value, Number):
        return exact(value)
    if isinstance(value, str):
        return exact_text(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return exact_bound(value)


def temporal_form(value: Value) -> Temporal | None:
    """The date or time that date terms compare."""
    return parse_temporal(value) if isinstance(value, str) else None


class Form(Enum):
    """In which form a term looks at values."""

    PRESENCE = 0
    TEXT = 1
    FOLDED = 2
    NUMBER = 3
    MOMENT = 4


_CONVERSIONS: dict[Form, Callable[[Value], object]] = {
    Form.PRESENCE: lambda value: value is not None,
    Form.TEXT: text_form,
    Form.FOLDED: folded_form,
    Form.NUMBER: numeric_form,
    Form.MOMENT: temporal_form,
}


class Selection:
    """The values of one pointer."""

    __slots__ = ("_forms", "_values")

    def __init__(self, document: Value, segments: Sequence[Segment]) -> None:
        self._values = select(document, segments)
        self._forms: dict[Form, Sequence[Any]] = {}

    def forms(self, form: Form) -> Sequence[Any]:
        """The different values in this form, without those that have none."""
        made = self._forms.get(form)
        if made is None:
            convert = _CONVERSIONS[form]
            converted = dict.fromkeys(convert(value) for value in self._values)
            converted.pop(None, None)
            made = self._forms[form] = tuple(converted)
        return made
