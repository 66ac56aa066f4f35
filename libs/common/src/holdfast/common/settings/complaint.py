"""One clear message out of a failed validation: who set the value, what it is, what is expected."""

from collections.abc import Callable, Mapping

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from holdfast.common.logging import mask_urls
from holdfast.common.settings.display import MASK, kind_of
from holdfast.common.settings.origin import Surroundings
from holdfast.common.sizes import format_duration, format_size

_VALUE_CHARS_MAX = 200
_BOUND_WORDS = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}


def complaint(error: ValidationError, around: Surroundings, fields: Mapping[str, FieldInfo]) -> str:
    """Every problem, one per line."""
    lines: dict[str, None] = {}
    for item in error.errors(include_url=False):
        name = str(item["loc"][0]) if item["loc"] else ""
        if not name:
            line = item["msg"].removeprefix("Value error, ")
        elif name not in fields:
            line = f"{name} is not a setting"
        else:
            line = _about_field(item, around, name, fields[name])
        lines.setdefault(line)
    return "\n".join(lines)


def _about_field(item: ErrorDetails, around: Surroundings, name: str, info: FieldInfo) -> str:
    value = around.value(name)
    if kind_of(info) == "secret":
        text = MASK
    else:
        text = mask_urls(repr(info.default if value is None else value))[:_VALUE_CHARS_MAX]
    return f"{around.origin(name).subject}: {text}: {_expected(item, info)}"


def _expected(item: ErrorDetails, info: FieldInfo) -> str:
    context = item.get("ctx", {})
    if item["type"] in _BOUND_WORDS:
        key, words = _BOUND_WORDS[item["type"]]
        return f"expected {words} {_bound(info, context[key])}"
    if item["type"] == "string_pattern_mismatch":
        return f"expected text of the form {context['pattern']}"
    message = item["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
    return message if "expected" in message else f"expected {message}"


def _bound(info: FieldInfo, bound: float) -> str:
    formats: dict[str, Callable[[float], str]] = {
        "duration": format_duration,
        "size": lambda value: format_size(int(value)),
    }
    return formats.get(kind_of(info), str)(bound)
