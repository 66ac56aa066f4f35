"""Structured logs: one JSON object per line on stderr, with `app`, `sys`, correlation and trace ids."""

import json
import logging as stdlib_logging
import re
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import lru_cache
from typing import Final, TextIO

LEVELS: Final = ("trace", "debug", "info", "warn", "error", "none")
_TRACE, _DEBUG, _INFO, _WARN, _ERROR, _NONE = range(6)

_TEXT_CHARS_MAX = 16_384
_DEPTH_MAX = 6
_RESERVED = frozenset({"ts", "lvl", "msg", "app", "sys"})
_SECRET_NAME = re.compile(
    r"passw|passphrase|secret|token|authorization|cookie|credential"
    r"|(api|access|account|private|root|signing|encryption|session|data)[-_.]?key|key[-_.]?material|\bpem\b",
    re.IGNORECASE,
)
_PUBLIC_NAMES = frozenset(
    {"fencing_token", "page_token", "token_count"}
)  # They match above but open nothing.
# Bounded repeats keep these linear on hostile text. A password may itself hold "@" or "/", hence the greedy match.
_URL_PASSWORD = re.compile(r"(://[^/\s:@]{0,256}:)\S{1,256}@")
_URL_SECRET = re.compile(
    r"([?&;](?:sig|[\w-]{0,64}(?:token|passw(?:or)?d|secret|(?:api|access|account)[-_]?key))=)[^&;\s]+",
    re.IGNORECASE,
)
_MASK = "***"

current_cid: ContextVar[str | None] = ContextVar("holdfast_cid", default=None)
"""The correlation id of the request being served; every line logged meanwhile carries it."""


class _Output:
    """Where lines go, from which level on; one per process."""

    def __init__(self) -> None:
        self.level = _INFO
        self.is_debug = False
        """Whether debug lines are written: hot paths ask, and spare making them."""
        self.stream: TextIO | None = None  # None: what sys.stderr is at the moment of writing.
        self.span_ids: Callable[[], tuple[str, str] | None] | None = None
        self._second = 0
        self._stamp = ""

    def stamp(self) -> str:
        second = int(time.time())
        if second != self._second:
            self._stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(second))
            self._second = second
        return self._stamp

    def emit(self, level: int, sys_name: str, msg: str, fields: Mapping[str, object]) -> None:
        record: dict[str, object] = {
            "ts": self.stamp(),
            "lvl": LEVELS[level],
            "msg": _clean_text(msg),
            "app": "holdfast",
            "sys": sys_name,
        }
        cid = current_cid.get()
        if cid is not None:
            record["cid"] = cid
        span_ids = self.span_ids() if self.span_ids is not None else None
        if span_ids is not None:
            record["trace_id"], record["span_id"] = span_ids
        for name, value in fields.items():
            record[f"field_{name}" if name in _RESERVED else name] = _clean(name, value, 0)
        stream = self.stream or sys.stderr
        try:
            stream.write(
                _ENCODER.encode(record) + "\n"
            )  # One write, so that lines of two threads do not mix.
            stream.flush()
        except (OSError, ValueError):
            return  # A closed or full stderr must not stop the service, and there is no other place to log.


_ENCODER = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), default=str)
output = _Output()


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether a field of this name holds something that must not be shown."""
    return name not in _PUBLIC_NAMES and _SECRET_NAME.search(name) is not None


def mask_urls(text: str) -> str:
    """The text with passwords and signatures inside URLs replaced."""
    if "://" in text:
        text = _URL_PASSWORD.sub(rf"\1{_MASK}@", text)
    return _URL_SECRET.sub(rf"\1{_MASK}", text) if "=" in text else text


def _clean_text(text: str) -> str:
    if len(text) > _TEXT_CHARS_MAX:
        text = text[:_TEXT_CHARS_MAX] + "…"
    return mask_urls(text)


def _clean(name: str, value: object, depth: int) -> object:
    """What may be written for a value: only JSON types, no secrets, bounded in length and depth."""
    if is_secret_name(name) and value is not None and not isinstance(value, bool):
        return _MASK
    if isinstance(value, str):
        return _clean_text(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if -1e308 < value < 1e308 else str(value)  # JSON knows neither NaN nor infinity.
    if isinstance(value, BaseException):
        return _clean_text(_exception_text(name, value))
    try:
        if depth < _DEPTH_MAX:
            if isinstance(value, Mapping):
                return {
                    _clean_text(str(key)): _clean(str(key), item, depth + 1) for key, item in value.items()
                }
            if isinstance(value, list | tuple | set | frozenset):
                return [_clean(name, item, depth + 1) for item in value]
        return _clean_text(repr(value))
    except Exception as error:  # noqa: BLE001 - a foreign __repr__ may raise anything, and logging never does
        return f"<{type(value).__name__} whose repr raises {type(error).__name__}>"


def _exception_text(name: str, error: BaseException) -> str:
    """Under the name `exception` the whole traceback, under any other name one line."""
    if name == "exception":
        return "".join(traceback.format_exception(error))
    return "".join(traceback.format_exception_only(error)).strip()


class Logger:
    """Writes lines for one `sys`. Fields are free; an exception goes in as `error=` or, in full, `exception=`."""

    __slots__ = ("sys",)

    def __init__(self, sys_name: str) -> None:
        self.sys = sys_name

    def trace(self, msg: str, /, **fields: object) -> None:
        if output.level <= _TRACE:
            output.emit(_TRACE, self.sys, msg, fields)

    def debug(self, msg: str, /, **fields: object) -> None:
        if output.level <= _DEBUG:
            output.emit(_DEBUG, self.sys, msg, fields)

    def info(self, msg: str, /, **fields: object) -> None:
        if output.level <= _INFO:
            output.emit(_INFO, self.sys, msg, fields)

    def warn(self, msg: str, /, **fields: object) -> None:
        if output.level <= _WARN:
            output.emit(_WARN, self.sys, msg, fields)

    def error(self, msg: str, /, **fields: object) -> None:
        if output.level <= _ERROR:
            output.emit(_ERROR, self.sys, msg, fields)

    def is_on(self, level: str) -> bool:
        """Whether lines of this level are written: ask before computing costly fields."""
        return output.level <= LEVELS.index(level)


def get_logger(sys_name: str) -> Logger:
    """The logger of one part; `sys_name` is dotted, `system.subsystem.component`."""
    return Logger(sys_name)


_FOREIGN_SYS = {
    "uvicorn": "api.http.server",
    "asyncio": "server.lifecycle.asyncio",
    "sqlalchemy": "storage.backend.sqlalchemy",
    "opentelemetry": "observability.telemetry.exporter",
    "py": "server.lifecycle.warning",
}


_REPEATED_EVERY_S: Final = {"opentelemetry": 300.0}
"""Libraries that go on complaining for as long as something is away, and how often each complaint is written."""

_COMPLAINTS_MAX: Final = 256


class _ForeignHandler(stdlib_logging.Handler):
    """Takes what libraries log through the standard library into the same format."""

    def __init__(self) -> None:
        super().__init__()
        self._written: dict[tuple[str, str], tuple[float, int]] = {}

    def emit(self, record: stdlib_logging.LogRecord) -> None:
        level = _level_of(record.levelno)
        if level < output.level:
            return
        fields: dict[str, object] = {"logger": record.name}
        if record.name.partition(".")[0] in _REPEATED_EVERY_S and self._is_repeated(record, fields):
            return
        if record.exc_info and record.exc_info[1] is not None:  # Some libraries pass False.
            fields["exception"] = record.exc_info[1]
        try:
            msg = record.getMessage()
        except Exception:  # noqa: BLE001 - a library's wrong format arguments may raise anything
            msg = str(record.msg)
        output.emit(
            level, _FOREIGN_SYS.get(record.name.partition(".")[0], f"python.{record.name}"), msg, fields
        )

    def _is_repeated(self, record: stdlib_logging.LogRecord, fields: dict[str, object]) -> bool:
        """Whether the same was written lately; else it is told how often it was left out."""
        key = record.name, str(record.msg)
        now_s = time.monotonic()
        since_s, left_out = self._written.get(key, (-1e9, 0))
        if now_s - since_s < _REPEATED_EVERY_S[record.name.partition(".")[0]]:
            self._written[key] = since_s, left_out + 1
            return True
        if len(self._written) >= _COMPLAINTS_MAX:
            self._written.clear()
        self._written[key] = now_s, 0
        if left_out:
            fields["left_out"] = left_out
        return False


def _level_of(levelno: int) -> int:
    if levelno >= stdlib_logging.ERROR:
        return _ERROR
    if levelno >= stdlib_logging.WARNING:
        return _WARN
    return _INFO if levelno >= stdlib_logging.INFO else _DEBUG


def configure_logging(level: str = "info", *, stream: TextIO | None = None) -> None:
    """Set the level and take over the standard library's logging; call once at the start of a process."""
    if level not in LEVELS:
        raise ValueError(f"log level {level!r} is none of {', '.join(LEVELS)}")
    output.level = LEVELS.index(level)
    output.is_debug = output.level <= _DEBUG
    output.stream = stream
    root = stdlib_logging.getLogger()
    root.handlers[:] = [_ForeignHandler()]
    # Below WARNING some libraries print what they carry: httpcore whole headers, SQLAlchemy bound values.
    root.setLevel(stdlib_logging.WARNING)
    for name, own_level in (("uvicorn", stdlib_logging.INFO), ("uvicorn.access", stdlib_logging.WARNING)):
        logger = stdlib_logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(own_level)
    stdlib_logging.captureWarnings(True)


def set_span_ids(source: Callable[[], tuple[str, str] | None] | None) -> None:
    """Tracing says where the ids of the active span (trace id, span id) come from; None turns it off."""
    output.span_ids = source
