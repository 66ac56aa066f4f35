"""Settings as people read them: durations and sizes in their own notation, secrets masked."""

from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin

from pydantic import BeforeValidator, SecretStr
from pydantic.fields import FieldInfo

from holdfast.common.logging import mask_urls
from holdfast.common.settings.flag import flag_of
from holdfast.common.sizes import format_duration, format_size, parse_duration_s, parse_size_bytes

Kind = Literal["duration", "size", "boolean", "integer", "number", "list", "choice", "path", "secret", "text"]

MASK = "***"


def choices_of(info: FieldInfo) -> tuple[str, ...]:
    """The words a setting may have, if it is one of a few."""
    return get_args(info.annotation) if get_origin(info.annotation) is Literal else ()


def kind_of(info: FieldInfo) -> Kind:
    """What sort of value a setting takes."""
    functions = [item.func for item in info.metadata if isinstance(item, BeforeValidator)]
    if parse_duration_s in functions:
        return "duration"
    if parse_size_bytes in functions:
        return "size"
    kinds: dict[object, Kind] = {
        bool: "boolean",
        int: "integer",
        float: "number",
        Path: "path",
        SecretStr: "secret",
        list: "list",
        Literal: "choice",
    }
    annotation = _without_none(info.annotation)
    return kinds.get(get_origin(annotation) or annotation, "text")


def _without_none(annotation: object) -> object:
    """`X` of `X | None`, and of `Annotated[X, …]` inside it."""
    if get_origin(annotation) in (Union, UnionType):
        annotation = next(part for part in get_args(annotation) if part is not NoneType)
    return (
        getattr(annotation, "__origin__", annotation) if hasattr(annotation, "__metadata__") else annotation
    )


def shown(info: FieldInfo, value: Any) -> object:
    """A value as a JSON type, the way it would be written in the config file; no secret, no URL password."""
    if value is None or value == "":
        return ""
    match kind_of(info):
        case "duration":
            return format_duration(value)
        case "size":
            return format_size(value)
        case "secret":
            return MASK
        case "list":
            return [mask_urls(str(item)) for item in cast("list[object]", value)]
        case "number":
            return int(value) if float(value).is_integer() else value
        case "path" | "text":
            return mask_urls(str(value))
        case _:
            return value


def default_shown(info: FieldInfo) -> str:
    """The default as text for help and docs; empty when there is none."""
    text = flag_of(info).default_text
    if text or info.default_factory is not None:
        return text
    if kind_of(info) == "boolean":
        return "true" if info.default else "false"
    if isinstance(info.default, str):
        # Defaults are written by hand as people write them; show every one in the same notation.
        reading = {"duration": parse_duration_s, "size": parse_size_bytes}.get(kind_of(info))
        return str(shown(info, reading(info.default))) if reading else info.default
    value = shown(info, info.default)
    return ", ".join(cast("list[str]", value)) if isinstance(value, list) else str(value)
