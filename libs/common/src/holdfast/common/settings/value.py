"""Kinds of setting values that are more than a number or a word: durations, sizes, paths, lists, addresses, store URLs."""

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Final, cast

from pydantic import BeforeValidator, PlainSerializer

from holdfast.common.settings.origin import surroundings
from holdfast.common.sizes import format_duration, format_size, parse_duration_s, parse_size_bytes

_HOST_PORT = re.compile(r"(?:\[([0-9a-fA-F:.%]+)\]|([^\[\]:/\s]*)):([0-9]{1,5})")
_LIST_ITEMS_MAX = 1024

WHOLE_NUMBER: Final = r"[+-]?[0-9]+"
"""In the environment of other servers, which ignore what is none."""

DurationS = Annotated[
    float,
    BeforeValidator(parse_duration_s),
    PlainSerializer(format_duration, return_type=str, when_used="json"),
]
"""Seconds, written as a duration in settings."""

SizeBytes = Annotated[
    int, BeforeValidator(parse_size_bytes), PlainSerializer(format_size, return_type=str, when_used="json")
]
"""Bytes, written as a size in settings."""


def _expand_path(value: object) -> object:
    if isinstance(value, Path):
        return value
    if not isinstance(value, str) or not value:
        raise ValueError("expected a path")
    return Path(surroundings.get().expand(value))


ExpandedPath = Annotated[Path, BeforeValidator(_expand_path)]
"""A path in which `~` and `$VAR` are replaced."""


def _split_words(value: object) -> object:
    """A list, or words with commas between them, as an environment variable has it."""
    items = cast("list[object]", value) if isinstance(value, list | tuple) else [value]
    if not all(isinstance(item, str) for item in items):
        raise ValueError("expected a list of words, or words with commas between them")
    words = [word.strip() for item in items for word in str(item).split(",") if word.strip()]
    if len(words) > _LIST_ITEMS_MAX:
        raise ValueError(f"expected at most {_LIST_ITEMS_MAX} words")
    return words


Words = Annotated[list[str], BeforeValidator(_split_words)]


def _expand_store(value: object) -> object:
    """Only disk URLs hold a path; a `$` in a database password stays what it is."""
    if not isinstance(value, str) or "://" not in value:
        raise ValueError("expected a storage URL such as mem://, disk:///path, postgres://… or s3://…")
    if value.startswith("disk://"):
        return "disk://" + surroundings.get().expand(value.removeprefix("disk://"))
    return value


StoreUrl = Annotated[str, BeforeValidator(_expand_store)]


def default_store() -> str:
    """A disk store where this user's data belongs."""
    around = surroundings.get()
    data_home = around.environ.get("XDG_DATA_HOME") or str(around.home() / ".local" / "share")
    return f"disk://{data_home}/holdfast/store"


def default_bundle() -> Path:
    """The bundle that is used when it is there."""
    return surroundings.get().config_dir / "server.pem"


def parse_host_port(text: str) -> tuple[str, int]:
    """Host and port of `host:port`, `:port` (every address) or `[v6]:port`."""
    match = _HOST_PORT.fullmatch(text)
    if match is None or int(match[3]) > 65535:
        raise ValueError(f"{text!r}: expected host:port, :port or [address]:port")
    return match[1] or match[2] or "", int(match[3])


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False
