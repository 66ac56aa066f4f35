"""Where a setting's value comes from: flags, environment, `.env`, config file; and where those files are."""

import difflib
import os
import re
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from pydantic.fields import FieldInfo

from holdfast.common.settings.flag import Flag, flag_of

_FILE_BYTES_MAX = 1 << 20
_POSITIVE_KEYS = {"mtls": "disable-mtls", "storage-encryption": "disable-storage-encryption"}
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")


class SettingsError(Exception):
    """The start is refused; the message names the setting, its value and what is expected."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Who set a value: `label` as `config show` prints it, `subject` as an error message names it."""

    label: str
    subject: str


@dataclass(slots=True)
class Layer:
    """The values one source gives, by field name."""

    values: dict[str, object] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)

    def put(self, name: str, value: object, origin: Origin) -> None:
        self.values[name] = value
        self.origins[name] = origin


class Surroundings:
    """Everything outside the process that settings are read from, gathered once per settings object."""

    def __init__(
        self,
        fields: Mapping[str, FieldInfo],
        service_prefix: str,
        given: Mapping[str, object],
        *,
        environ: Mapping[str, str],
        directory: Path | None,
    ) -> None:
        self.environ = environ
        self._flags = {name: flag_of(info) for name, info in fields.items()}
        self._prefix = service_prefix
        self.flag_layer = Layer()
        for name, value in given.items():
            label = f"--{self._flags[name].name}" if name in self._flags else name
            self.flag_layer.put(name, value, Origin("flag", f"flag {label}"))
        self.env_layer = self._from_variables(environ, "env ")
        self.dotenv_layer = self._from_variables(_read_dotenv(directory), ".env ") if directory else Layer()
        self.file_layer = Layer()
        self.config_dir = self._find_config_dir()
        self.config_file = self._find_config_file(directory is not None)
        if self.config_file is not None:
            self.file_layer = self._from_file(self.config_file)

    def layers(self) -> tuple[Layer, ...]:
        """The strongest first."""
        return (self.flag_layer, self.env_layer, self.dotenv_layer, self.file_layer)

    def origin(self, name: str) -> Origin:
        """Where this field was set, `default` if it was not."""
        for layer in self.layers():
            if name in layer.origins:
                return layer.origins[name]
        flag = self._flags[name]
        return Origin("default", f"setting {flag.name}")

    def value(self, name: str) -> object:
        """The raw value of a field, None if it was not set."""
        return next((layer.values[name] for layer in self.layers() if name in layer.values), None)

    def asks_for(self, positive: str) -> bool:
        """Whether `positive` was turned on in so many words, by its own key or by denying its `disable-…` twin."""
        twin = next(name for name, flag in self._flags.items() if flag.key == _POSITIVE_KEYS[positive])
        return self.origin(twin).label != "default"

    def home(self) -> Path:
        """The user's home; a container may run under a user that has none."""
        try:
            return Path(self.environ.get("HOME") or Path.home())
        except RuntimeError:
            raise SettingsError(
                "this user has no home directory: set HOME, or HOLDFAST_CONFIG_DIR and --store"
            ) from None

    def expand(self, text: str) -> str:
        """A path with `~` and `$VAR` replaced; a variable that is not set is an error, not an empty string."""
        expanded = _VARIABLE.sub(self._variable, text)
        if expanded == "~" or expanded.startswith("~/"):
            return str(self.home()) + expanded[1:]
        return expanded

    def _variable(self, match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in self.environ:
            raise ValueError(f"expected a path, but its variable ${name} is not set")
        return self.environ[name]

    def _from_variables(self, variables: Mapping[str, str], label: str) -> Layer:
        layer = Layer()
        for name, flag in self._flags.items():
            names = flag.env_names(self._prefix)
            found = next((env for env in names if flag.reads(env, variables.get(env))), None)
            if found is not None:
                subject = f"environment variable {found}" if label == "env " else f"{found} in .env"
                layer.put(name, variables[found], Origin(label + found, subject))
        return layer

    def _find_config_dir(self) -> Path:
        for name in ("bootstrap", "config_dir"):  # A bootstrap directory is the config directory.
            if self.value(name):
                return self._named_path(name)
        return self.home() / ".holdfast"

    def _named_path(self, name: str) -> Path:
        try:
            return Path(self.expand(str(self.value(name))))
        except ValueError as error:
            raise SettingsError(f"{self.origin(name).subject}: {self.value(name)!r}: {error}") from None

    def _find_config_file(self, read_default: bool) -> Path | None:
        named = self.value("config")
        path = self._named_path("config") if named else self.config_dir / "config.yaml"
        try:
            is_there, is_directory = path.exists(), path.is_dir()
        except OSError as error:
            raise SettingsError(f"config file {path} cannot be read: {error.strerror}") from error
        if named and not is_there:
            raise SettingsError(f"{self.origin('config').subject}: config file {path} does not exist")
        if is_directory and (named or read_default):
            raise SettingsError(f"config file {path} is a directory; name a YAML file")
        return path if is_there and (named or read_default) else None

    def _from_file(self, path: Path) -> Layer:
        layer = Layer()
        by_key = {flag.key: (name, flag) for name, flag in self._flags.items()}
        content = _read_yaml(path)
        for key, value in content.items():
            if key not in by_key and key not in _POSITIVE_KEYS:
                raise SettingsError(_unknown_key(path, key, list(by_key) + list(_POSITIVE_KEYS)))
            if value is None or value == "" or key in _POSITIVE_KEYS:
                continue
            name, flag = by_key[key]
            if not flag.in_file:
                raise SettingsError(f"{path}: key {key!r} cannot stand in the file; set {_elsewhere(flag)}")
            layer.put(name, value, Origin(f"file {path}", f"key {key} in {path}"))
        for key, twin in _POSITIVE_KEYS.items():
            if content.get(key) is None:
                continue
            if not isinstance(content[key], bool):
                raise SettingsError(f"key {key} in {path}: {content[key]!r}: expected true or false")
            layer.put(by_key[twin][0], not content[key], Origin(f"file {path}", f"key {key} in {path}"))
        return layer


def _elsewhere(flag: Flag) -> str:
    return f"--{flag.name}" if flag.on_command_line else flag.env_names("")[1]


def _unknown_key(path: Path, key: str, known: list[str]) -> str:
    nearest = difflib.get_close_matches(key, known, n=1)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else "; `holdfast config show` lists all keys"
    return f"{path}: unknown key {key!r}{hint}"


def _read_dotenv(directory: Path) -> dict[str, str]:
    path = directory / ".env"
    try:
        if not path.is_file():
            return {}
        from dotenv import dotenv_values  # As in `_read_yaml`.

        return {
            name: value for name, value in dotenv_values(path, interpolate=False).items() if value is not None
        }
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from error


def _read_yaml(path: Path) -> dict[str, object]:
    import yaml  # Most processes have no config file, and the import takes as long as reading the settings.

    try:
        with path.open("rb") as file:  # Not by its size: a device or a pipe has none.
            raw = file.read(_FILE_BYTES_MAX + 1)
        if len(raw) > _FILE_BYTES_MAX:
            raise SettingsError(f"config file {path} is larger than 1 MiB")
        content: object = yaml.safe_load(raw.decode("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"config file {path} cannot be read: {error}") from error
    except yaml.MarkedYAMLError as error:
        # Without the line itself, which may hold a password.
        line = "" if error.problem_mark is None else f" in line {error.problem_mark.line + 1}"
        raise SettingsError(f"config file {path} is not YAML: {error.problem}{line}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SettingsError(f"config file {path} is not YAML: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise SettingsError(f"config file {path}: expected lines of `key: value`")
    return {str(key): value for key, value in cast("dict[object, object]", content).items()}


surroundings: ContextVar[Surroundings] = ContextVar("holdfast_settings_surroundings")
"""Set while a settings object is being made: validators and computed defaults look here, never at os.environ."""


def default_environ() -> Mapping[str, str]:
    """The process environment: the one place that touches it."""
    return os.environ
