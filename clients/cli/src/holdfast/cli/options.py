"""Command line options made from a settings class, so that a flag is declared in one place only."""

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

import typer
from pydantic.fields import FieldInfo
from typer.core import TyperCommand

from holdfast.cli.output import failure
from holdfast.common.settings import PlaneSettings, SettingsError
from holdfast.common.settings.display import Kind, choices_of, default_shown, kind_of
from holdfast.common.settings.flag import flag_of

WRONG_SETTINGS = 2

SettingsT = TypeVar("SettingsT", bound=PlaneSettings)

_METAVARS: dict[Kind, str] = {
    "duration": "DURATION",
    "size": "SIZE",
    "integer": "N",
    "number": "X",
    "path": "PATH",
    "secret": "SECRET",
    "list": "URL",
    "text": "TEXT",
}
_TRUE_WORDS = frozenset({"1", "t", "true", "yes", "on"})
_FALSE_WORDS = frozenset({"0", "f", "false", "no", "off"})
_WITH_VALUE = re.compile(r"--([a-z0-9-]+)=(\w+)")


class Flags:
    """The flags that were given on a command line; `build` joins them with everything else."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given

    def build(self, settings_cls: type[SettingsT]) -> SettingsT:
        """The settings; a wrong value ends the program with its message and exit code 2."""
        try:
            return settings_cls(**self.given)
        except SettingsError as error:
            raise failure(str(error), WRONG_SETTINGS) from None

    def build_for_start(self, settings_cls: type[SettingsT]) -> SettingsT:
        """The same for a server, which also needs its bundles to be there."""
        settings = self.build(settings_cls)
        try:
            settings.check_start()
        except SettingsError as error:
            raise failure(str(error), WRONG_SETTINGS) from None
        return settings


class SettingsCommand(TyperCommand):
    """A command that also takes `--flag=false`, as Go programs do, where click knows `--no-flag` only."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # Typer may bring its own copy of click, so the context has no type that could be named here.
        switches = {
            option.removeprefix("--"): parameter.secondary_opts[0]
            for parameter in self.params
            if parameter.secondary_opts
            for option in parameter.opts
        }
        return super().parse_args(ctx, [_plain_switch(argument, switches) for argument in args])


def _plain_switch(argument: str, switches: dict[str, str]) -> str:
    match = _WITH_VALUE.fullmatch(argument)
    if match is None or match[1] not in switches:
        return argument
    word = match[2].lower()
    if word in _TRUE_WORDS:
        return f"--{match[1]}"
    return switches[match[1]] if word in _FALSE_WORDS else argument


def settings_options(
    settings_cls: type[PlaneSettings],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate `def command(flags: Flags, …)`: it then takes every flag of the class besides its own parameters.

    Register the result with `app.command(cls=SettingsCommand)`.
    """
    fields = {name: info for name, info in settings_cls.model_fields.items() if flag_of(info).on_command_line}

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        own = [
            parameter
            for parameter in inspect.signature(function).parameters.values()
            if parameter.name != "flags"
        ]
        clash = {parameter.name for parameter in own} & fields.keys()
        assert not clash, f"{function.__name__} names {clash}, which are settings"

        @functools.wraps(function)
        def command(**arguments: object) -> None:
            given = {name: arguments.pop(name) for name in fields}
            function(
                flags=Flags({name: value for name, value in given.items() if _is_given(value)}), **arguments
            )

        parameters = [
            *(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own),
            *(_parameter(name, info) for name, info in fields.items()),
        ]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # Typer reads it here.
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return command

    return decorate


def _is_given(value: object) -> bool:
    return value is not None and value != []


def _parameter(name: str, info: FieldInfo) -> inspect.Parameter:
    """One option. It has no default of its own: what is not given must not beat the environment."""
    flag = flag_of(info)
    kind = kind_of(info)
    declarations = [f"--{flag.name}"]
    if kind == "boolean":
        declarations = [f"--{flag.name}/--no-{flag.name}"]
    elif flag.short:
        declarations.append(f"-{flag.short}")
    option: Any = typer.Option(
        None,
        *declarations,
        help=_help(info),
        rich_help_panel=flag.group.capitalize(),
        metavar=None if kind == "boolean" else _metavar(info, kind),
        show_default=False,
    )
    types: dict[Kind, Any] = {"boolean": bool | None, "list": list[str] | None}
    annotation = types.get(kind, str | None)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=annotation)


def _metavar(info: FieldInfo, kind: Kind) -> str:
    return "|".join(choices_of(info)) if kind == "choice" else _METAVARS[kind]


def _help(info: FieldInfo) -> str:
    default = default_shown(info)
    return f"{info.description}{flag_of(info).note}" + (f" (default: {default})" if default else "")
