"""How one setting is declared: its flag, its environment names, its key in the config file."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

from pydantic import Field
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsConfigDict

ENV_PREFIXES = ("HOLDFAST_", "LOCKD_")
_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1
_INT64_DIGITS: Final = 19


class SettingsGroup(BaseSettings):
    """Settings declared together; their validator is built when one is used, as a process uses one of many classes."""

    model_config = SettingsConfigDict(defer_build=True)


@dataclass(frozen=True, slots=True)
class Flag:
    """What the outside calls a setting. `default_text` stands in help and docs where the default is computed."""

    name: str
    group: str
    key: str
    short: str = ""
    default_text: str = ""
    env_extra: tuple[str, ...] = ()  # Names read after HOLDFAST_X and LOCKD_X.
    env_extra_pattern: str = ""  # What stands in those and does not match counts as not set.
    is_ignored: bool = False
    on_command_line: bool = True
    in_file: bool = True

    @property
    def note(self) -> str:
        """What follows its description wherever that is shown."""
        return " Accepted for compatibility, without effect." if self.is_ignored else ""

    def env_names(self, service_prefix: str) -> tuple[str, ...]:
        """Every variable this setting is read from, the strongest first."""
        suffix = self.name.upper().replace("-", "_")
        prefixes = dict.fromkeys((service_prefix, *ENV_PREFIXES))
        return (*(prefix + suffix for prefix in prefixes), *self.env_extra)

    def reads(self, name: str, value: str | None) -> bool:
        """Whether that variable with that value sets it."""
        # An empty variable counts as not set, as in shells and compose files that pass everything through.
        if not value or name not in self.env_extra or not self.env_extra_pattern:
            return bool(value)
        return re.fullmatch(self.env_extra_pattern, value) is not None and not is_beyond_int64(value)


def is_beyond_int64(text: str) -> bool:
    """Whether it is a number, and one that a program which counts in 64 bits cannot read."""
    digits = text.lstrip("+-").lstrip("0")
    if not digits.isdecimal():
        return False
    return len(digits) > _INT64_DIGITS or not _INT64_MIN <= int(text) <= _INT64_MAX


def setting(
    group: str,
    name: str,
    default: object,
    description: str,
    *,
    key: str = "",
    short: str = "",
    default_text: str = "",
    default_factory: Callable[[], object] | None = None,
    env_extra: tuple[str, ...] = (),
    env_extra_pattern: str = "",
    is_ignored: bool = False,
    on_command_line: bool = True,
    in_file: bool = True,
    **bounds: Any,
) -> Any:
    """A pydantic field that knows its flag; defaults are written as a user would write them."""
    flag = {
        "flag": name,
        "group": group,
        "key": key or name,
        "short": short,
        "default_text": default_text,
        "env_extra": list(env_extra),
        "env_extra_pattern": env_extra_pattern,
        "is_ignored": is_ignored,
        "on_command_line": on_command_line,
        "in_file": in_file,
    }
    common: dict[str, Any] = {"description": description, "json_schema_extra": flag, "validate_default": True}
    if default_factory is not None:
        return Field(default_factory=default_factory, **common, **bounds)
    return Field(default, **common, **bounds)


def flag_of(info: FieldInfo) -> Flag:
    """The flag a field was declared with."""
    extra = cast("dict[str, Any]", info.json_schema_extra)
    return Flag(
        name=extra["flag"],
        group=extra["group"],
        key=extra["key"],
        short=extra["short"],
        default_text=extra["default_text"],
        env_extra=tuple(extra["env_extra"]),
        env_extra_pattern=extra["env_extra_pattern"],
        is_ignored=extra["is_ignored"],
        on_command_line=extra["on_command_line"],
        in_file=extra["in_file"],
    )
