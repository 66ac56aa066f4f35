"""What it costs to check and compact a JSON document of 2 MB, beside a parser in C or Rust that only parses it.

The parser is orjson where it is installed; else the one of pydantic-core (jiter), which comes with the product.
"""

import importlib
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import from_json

from holdfast.cli.bench.query import LARGE_ROWS, large_document
from holdfast.common.json_text import compact

ROUNDS: Final = 15


@dataclass(frozen=True, slots=True)
class Row:
    """One text of the same document."""

    name: str
    size_bytes: int
    compact_ms: float
    parse_ms: float
    compact_to_parse: float


@dataclass(frozen=True, slots=True)
class Compaction:
    parser: str
    rows: list[Row]


def run(*, rounds: int = ROUNDS) -> Compaction:
    tight = large_document()
    members = json.loads(tight)
    assert len(members["rows"]) == LARGE_ROWS
    texts = {
        "compact already": tight,
        "with a space after each colon and comma": json.dumps(members).encode(),
        "indented, a member in each line": json.dumps(members, indent=2).encode(),
    }
    name, parse = _parser()
    return Compaction(name, [_row(title, text, tight, parse, rounds) for title, text in texts.items()])


def _parser() -> tuple[str, Callable[[bytes], Any]]:
    try:
        return "orjson", importlib.import_module("orjson").loads
    except ImportError:
        return "pydantic-core", _parse_with_pydantic


def _parse_with_pydantic(text: bytes) -> Any:
    return from_json(text, allow_inf_nan=False)


def _row(name: str, text: bytes, tight: bytes, parse: Callable[[bytes], Any], rounds: int) -> Row:
    assert compact(text) == tight
    pairs = [(_spent_ms(compact, text), _spent_ms(parse, text)) for _ in range(rounds)]
    return Row(
        name,
        len(text),
        statistics.median(compact_ms for compact_ms, _ in pairs),
        statistics.median(parse_ms for _, parse_ms in pairs),
        statistics.median(compact_ms / parse_ms for compact_ms, parse_ms in pairs),
    )


def _spent_ms(work: Callable[[bytes], Any], text: bytes) -> float:
    began_ns = time.thread_time_ns()
    work(text)
    return (time.thread_time_ns() - began_ns) / 1e6
