"""The page of the benchmarks has a place for each part, and says of each target whether it holds."""

import string

from tests.bench.frame_bench import FORMS, YARDSTICK, Form, Row
from tests.bench.main import PARTS
from tests.bench.page import PAGE
from tests.bench.report import frame_table, frame_targets

FACTS = {
    *("date", "machine", "targets", "value_bytes", "postgres_origin", "writers", "steady"),
    *("clients", "frame_clients", "load", "growth_clients", "parser"),
    *("idle_connections", "idle_kb"),
}


def row(form: Form, *, is_frame: bool = False) -> Row:
    return Row(form.kind, form.is_keep_alive, 300.0, 1.5, 3000.0, 0.9, 0.4, 7.5, is_frame)


def test_every_part_has_a_place_in_the_page() -> None:
    places = {name for _, name, _, _ in string.Formatter().parse(PAGE) if name is not None}

    assert places == {*PARTS, *FACTS}


def test_targets_beside_the_frame_are_of_new_connections_but_for_reads() -> None:
    targets = {
        target.name: target for target in frame_targets([*map(row, FORMS), row(YARDSTICK, is_frame=True)])
    }

    assert [name for name, target in targets.items() if not target.holds] == [
        "CPU of a public read to the frame's lock cycle"
    ]
    assert len(targets) == 8
    assert targets["commits per sync, lock cycles of 16 clients"].is_minimum


def test_rows_of_the_frame_are_named_as_its_own() -> None:
    lines = frame_table([row(YARDSTICK), row(YARDSTICK, is_frame=True)]).splitlines()

    assert [line.split("|")[1].strip() for line in lines[2:]] == ["a lock cycle", "the frame: a lock cycle"]
