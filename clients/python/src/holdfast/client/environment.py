"""The environment of a client: `HOLDFAST_CLIENT_X`, else `LOCKD_CLIENT_X`."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.client.errors import InvalidArgument
from holdfast.client.options import SERVER_DEFAULT, SERVER_DEFAULT_TLS, ClientOptions
from holdfast.common.sizes import parse_duration_s

PREFIXES: Final = ("HOLDFAST_CLIENT_", "LOCKD_CLIENT_")

_TRUE_WORDS: Final = frozenset({"1", "t", "true", "yes", "on"})
_FALSE_WORDS: Final = frozenset({"0", "f", "false", "no", "off"})


class Environment:
    """Reads one variable by its two names; an empty one counts as absent."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def text(self, name: str) -> str:
        for prefix in PREFIXES:
            if value := self._environ.get(prefix + name, "").strip():
                return value
        return ""

    def boolean(self, name: str, *, default: bool) -> bool:
        word = self.text(name).lower()
        if not word:
            return default
        if word not in _TRUE_WORDS | _FALSE_WORDS:
            raise InvalidArgument(f"{PREFIXES[0]}{name}: expected true or false")
        return word in _TRUE_WORDS

    def duration_s(self, name: str, *, default: float) -> float:
        word = self.text(name)
        try:
            seconds = parse_duration_s(word) if word else default
        except ValueError as error:
            raise InvalidArgument(f"{PREFIXES[0]}{name}: {error}") from error
        if seconds <= 0:
            raise InvalidArgument(f"{PREFIXES[0]}{name}: expected more than 0s")
        return seconds

    def bundle(self) -> Path | None:
        """The named bundle, else the only `client*.pem` of the configuration directory."""
        if named := self.text("BUNDLE"):
            return Path(os.path.expandvars(named)).expanduser()
        found = sorted(self._config_dir().glob("client*.pem"))
        return found[0] if len(found) == 1 else None

    def _config_dir(self) -> Path:
        for name in ("HOLDFAST_CONFIG_DIR", "LOCKD_CONFIG_DIR"):
            if value := self._environ.get(name, "").strip():
                return Path(os.path.expandvars(value)).expanduser()
        return Path(self._environ.get("HOME") or "/nonexistent") / ".holdfast"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Where to connect, and how."""

    servers: tuple[str, ...]
    options: ClientOptions


def client_settings(
    environ: Mapping[str, str] | None = None,
    *,
    server: str = "",
    bundle: Path | None = None,
    disable_mtls: bool | None = None,
    drain_aware: bool = True,
) -> ClientSettings:
    """What the environment says; an argument that is given wins."""
    around = Environment(os.environ if environ is None else environ)
    is_mtls_off = around.boolean("DISABLE_MTLS", default=False) if disable_mtls is None else disable_mtls
    bundle = bundle or around.bundle()
    fallback = SERVER_DEFAULT if bundle is None or is_mtls_off else SERVER_DEFAULT_TLS
    options = ClientOptions(
        namespace=around.text("NAMESPACE") or "default",
        owner=around.text("OWNER"),
        bundle=bundle,
        disable_mtls=is_mtls_off,
        timeout_s=around.duration_s("TIMEOUT", default=15.0),
        close_timeout_s=around.duration_s("CLOSE_TIMEOUT", default=5.0),
        keepalive_timeout_s=around.duration_s("KEEPALIVE_TIMEOUT", default=5.0),
        drain_aware=around.boolean("DRAIN_AWARE", default=drain_aware),
        correlation_id=around.text("CORRELATION_ID"),
    )
    return ClientSettings((server or around.text("SERVER") or fallback,), options)
