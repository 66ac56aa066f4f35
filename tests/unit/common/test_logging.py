"""Log lines are one JSON object each, hold no secret, and logging never raises."""

import io
import json
import logging as stdlib_logging
import warnings
from collections.abc import Iterator

import pytest

from holdfast.common import logging
from holdfast.common.logging import (
    configure_logging,
    current_cid,
    get_logger,
    is_secret_name,
    mask_urls,
    set_span_ids,
)


class Lines:
    """A stream that gives back what was logged."""

    def __init__(self) -> None:
        self.stream = io.StringIO()

    def all(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]

    def one(self) -> dict[str, object]:
        (line,) = self.all()
        return line


@pytest.fixture
def lines() -> Iterator[Lines]:
    root = stdlib_logging.getLogger()
    handlers, level = list(root.handlers), root.level
    lines = Lines()
    configure_logging("trace", stream=lines.stream)
    yield lines
    configure_logging("info")
    set_span_ids(None)
    stdlib_logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_line_has_time_level_message_app_and_sys_first(lines: Lines) -> None:
    get_logger("api.http.server").info("request.done", status=200)

    line = lines.one()
    assert list(line) == ["ts", "lvl", "msg", "app", "sys", "status"]
    assert (line["lvl"], line["msg"], line["app"]) == ("info", "request.done", "holdfast")
    assert (line["sys"], line["status"]) == ("api.http.server", 200)


def test_the_time_is_in_utc_to_the_second(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1794788270.9)

    get_logger("a").info("x")

    assert lines.one()["ts"] == "2026-11-16T00:17:50Z"


@pytest.mark.parametrize(
    ("level", "written"),
    [
        ("trace", ["trace", "debug", "info", "warn", "error"]),
        ("debug", ["debug", "info", "warn", "error"]),
        ("info", ["info", "warn", "error"]),
        ("warn", ["warn", "error"]),
        ("error", ["error"]),
        ("none", []),
    ],
)
def test_only_lines_from_the_level_on_are_written(lines: Lines, level: str, written: list[str]) -> None:
    configure_logging(level, stream=lines.stream)
    log = get_logger("a")

    for write in (log.trace, log.debug, log.info, log.warn, log.error):
        write("x")

    assert [line["lvl"] for line in lines.all()] == written
    assert [name for name in logging.LEVELS[:5] if log.is_on(name)] == written


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="trace, debug, info, warn, error, none"):
        configure_logging("loud")


def test_the_correlation_id_and_the_active_span_are_in_every_line(lines: Lines) -> None:
    set_span_ids(lambda: ("t1", "s1"))
    token = current_cid.set("cid-1")

    get_logger("a").info("x")

    current_cid.reset(token)
    line = lines.one()
    assert (line["cid"], line["trace_id"], line["span_id"]) == ("cid-1", "t1", "s1")


def test_without_a_span_there_are_no_trace_fields(lines: Lines) -> None:
    set_span_ids(lambda: None)

    get_logger("a").info("x")

    assert "trace_id" not in lines.one()


def test_fields_do_not_overwrite_the_frame(lines: Lines) -> None:
    get_logger("a").info("x", sys="other", app="b")

    line = lines.one()
    assert (line["sys"], line["app"], line["field_sys"], line["field_app"]) == ("a", "holdfast", "other", "b")


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "db_passwd",
        "TOKEN",
        "lease_token",
        "client_secret",
        "authorization",
        "Set-Cookie",
        "aws_access_key_id",
        "private_key",
        "root-key",
        "key_material",
    ],
)
def test_fields_with_secret_names_are_masked(lines: Lines, name: str) -> None:
    get_logger("a").info("x", **{name: "hunter2"}, nested={name: ["hunter2"]})

    assert "hunter2" not in lines.stream.getvalue()
    assert lines.one()[name] == "***"


@pytest.mark.parametrize("name", ["key", "fencing_token", "namespace", "monkey", "keys"])
def test_fields_that_open_nothing_are_shown(lines: Lines, name: str) -> None:
    assert not is_secret_name(name)

    get_logger("a").info("x", **{name: 7})

    assert lines.one()[name] == 7


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgres://user:pa/ss@w@host:5432/db", "postgres://user:***@host:5432/db"),
        ("redis://:pw@host", "redis://:***@host"),
        ("https://h/c?sv=1&sig=abc%3D&se=2", "https://h/c?sv=1&sig=***&se=2"),
        ("https://h/?access_token=abc", "https://h/?access_token=***"),
        ("https://h/v1/get?key=orders", "https://h/v1/get?key=orders"),
        ("nothing here", "nothing here"),
    ],
)
def test_secrets_inside_urls_are_masked(text: str, masked: str) -> None:
    assert mask_urls(text) == masked


def test_urls_are_masked_in_messages_fields_lists_and_errors(lines: Lines) -> None:
    url = "postgres://u:hunter2@h/db"

    get_logger("a").warn(
        f"cannot reach {url}", store=url, many=[url], error=ValueError(url), odd={url: object()}
    )

    assert "hunter2" not in lines.stream.getvalue()


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def test_values_that_json_does_not_know_become_text(lines: Lines) -> None:
    circular: list[object] = []
    circular.append(circular)
    fields: dict[str, object] = {
        "raw": b"\xff",
        "nan": float("nan"),
        "many": {1, 2},
        "circular": circular,
        "hostile": Hostile(),
        "keyed": {(1, 2): Hostile()},
        "surrogate": "\ud800",
        "line": "a\nb",
    }

    get_logger("a").info("x", **fields)

    line = lines.one()
    assert (line["raw"], line["nan"], line["many"], line["line"]) == ("b'\\xff'", "nan", [1, 2], "a\nb")
    assert line["hostile"] == "<Hostile whose repr raises RuntimeError>"


def test_long_text_is_cut(lines: Lines) -> None:
    get_logger("a").info("x", body="a" * 1_000_000)

    assert len(lines.stream.getvalue()) < 20_000


def test_an_error_is_one_line_and_an_exception_the_whole_traceback(lines: Lines) -> None:
    try:
        raise KeyError("k")
    except KeyError as error:
        get_logger("a").error("failed", error=error, exception=error)

    line = lines.one()
    assert line["error"] == "KeyError: 'k'"
    assert str(line["exception"]).startswith("Traceback")


def test_a_closed_stream_is_survived() -> None:
    stream = io.StringIO()
    configure_logging("info", stream=stream)
    stream.close()

    get_logger("a").info("x")

    configure_logging("info")


def test_lines_of_libraries_take_the_same_form(lines: Lines) -> None:
    stdlib_logging.getLogger("uvicorn.error").info("started on %s", 9341)
    stdlib_logging.getLogger("sqlalchemy.pool").warning("postgres://u:hunter2@h/db lost")
    try:
        raise OSError("x")
    except OSError:
        stdlib_logging.getLogger("asyncio").exception("task died")

    first, second, third = lines.all()
    assert (first["sys"], first["msg"], first["lvl"]) == ("api.http.server", "started on 9341", "info")
    assert (second["sys"], second["lvl"]) == ("storage.backend.sqlalchemy", "warn")
    assert "hunter2" not in str(second)
    assert "OSError: x" in str(third["exception"])


def test_a_library_that_formats_wrongly_is_survived(lines: Lines) -> None:
    wrong = stdlib_logging.LogRecord(
        "some.library", stdlib_logging.ERROR, "", 0, "broken %d", ("text",), None
    )

    logging._ForeignHandler().emit(wrong)

    line = lines.one()
    assert (line["sys"], line["msg"], line["lvl"]) == ("python.some.library", "broken %d", "error")


def test_a_library_that_denies_an_exception_is_survived(lines: Lines) -> None:
    stdlib_logging.getLogger("some.library").error("failed", exc_info=False)

    assert "exception" not in lines.one()


def test_what_libraries_say_below_warning_stays_unsaid(lines: Lines) -> None:
    stdlib_logging.getLogger("httpcore").debug("headers with secrets")
    stdlib_logging.getLogger("sqlalchemy.engine").info("bound values")

    assert lines.all() == []


def test_python_warnings_become_lines(lines: Lines) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        stdlib_logging.captureWarnings(True)
        warnings.warn("old thing", UserWarning, stacklevel=1)

    assert "old thing" in str(lines.one()["msg"])


def test_what_opentelemetry_repeats_is_written_once_and_counted(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter = stdlib_logging.getLogger("opentelemetry.exporter.some")
    for number in range(5):
        exporter.warning("no way to %s", number)
    exporter.error("given up")

    monkeypatch.setitem(logging._REPEATED_EVERY_S, "opentelemetry", 0.0)
    exporter.warning("no way to %s", 5)

    written = [(line["msg"], line.get("left_out")) for line in lines.all()]
    assert written == [("no way to 0", None), ("given up", None), ("no way to 5", 4)]
