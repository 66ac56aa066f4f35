"""The load of the benchmarks drives a plane: the one in C where it can be compiled, else the one in Python."""

import json
import re
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import fields
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

from holdfast.cli.bench.load import LoadJob, LoadResult
from holdfast.cli.bench.measure import Run, drive, python_load
from tests.bench import c_load, locks_bench
from tests.bench.preparation import prepare
from tests.bench.report import locks_targets
from tests.bench.shapes import ROOT, Plane, on_disk

CLIENTS = 4
REQUESTS = {"lock": 3, "transaction": 5, "read": 1, "attachment": 3, "queue": 3, "query": 1}
LOAD = partial(c_load.command, warm_up_s=0.05)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with on_disk(tmp_path_factory.mktemp("plane"), ROOT) as plane:
        for kind in c_load.KINDS:
            prepare(plane, kind)
        yield plane


def measured(plane: Plane, kind: str, *, is_keep_alive: bool = True, is_fresh_keys: bool = False) -> Run:
    return drive(
        plane,
        kind,
        concurrency=CLIENTS,
        seconds=0.1,
        keys=CLIENTS,
        is_keep_alive=is_keep_alive,
        is_fresh_keys=is_fresh_keys,
        load=LOAD,
    )


@pytest.mark.parametrize("is_keep_alive", [True, False], ids=["kept", "new"])
@pytest.mark.parametrize("kind", c_load.KINDS)
def test_each_kind_of_operation_is_done_and_told(plane: Plane, kind: str, is_keep_alive: bool) -> None:
    load = measured(plane, kind, is_keep_alive=is_keep_alive).load

    assert load.operations > 0
    # Some operations are under way at the beginning, and some at the end.
    assert abs(load.requests - REQUESTS[kind] * load.operations) <= REQUESTS[kind] * CLIENTS
    assert 0.09 <= load.seconds < 5
    assert 0 < load.p50_ms <= load.p95_ms <= load.p99_ms


def test_a_new_key_for_each_operation_is_what_nobody_had_before(plane: Plane) -> None:
    runs = [measured(plane, "lock", is_fresh_keys=True) for _ in range(2)]

    asked = Request(f"{plane.url}/v1/query", b'{"limit":1000}', {"Content-Type": "application/json"})
    with urlopen(asked, timeout=10) as answer:
        keys = json.loads(answer.read())["keys"]
    fresh = [key for key in keys if re.fullmatch(r"bench-[0-9a-f]+-\d+-\d+", key)]
    assert len(fresh) >= sum(run.load.operations for run in runs)
    assert len({key.split("-")[1] for key in fresh}) == len(runs)


def test_the_load_is_in_c_where_there_is_a_compiler_and_says_which_it_is() -> None:
    job = LoadJob("127.0.0.1", 9341, "lock", CLIENTS, 0.1, CLIENTS)

    words = c_load.command(job)

    is_in_c = c_load.find_compiler() is not None
    assert (Path(words[0]).parent.name.startswith("holdfast-bench-")) is is_in_c
    assert c_load.name().startswith("C" if is_in_c else "Python")
    assert is_in_c or list(words) == list(python_load(job))


def test_without_a_compiler_the_load_is_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_load, "COMPILERS", ("a-compiler-that-is-nowhere",))
    job = LoadJob("127.0.0.1", 9341, "lock", CLIENTS, 0.1, CLIENTS)

    assert list(c_load.command(job)) == list(python_load(job))
    assert c_load.name().startswith("Python")


def test_what_it_prints_is_a_load_result(plane: Plane) -> None:
    port = urlsplit(plane.url).port
    assert port is not None

    job = LoadJob("127.0.0.1", port, "lock", CLIENTS, 0.1, CLIENTS)
    printed = subprocess.run(LOAD(job), capture_output=True, text=True, timeout=30, check=True).stdout

    begin, result = printed.splitlines()
    assert begin == "begin"
    known = {field.name for field in fields(LoadResult)}
    assert known - {"commit_p50_ms"} <= json.loads(result).keys() <= known


class Refusing(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = b'{"error":"lease_held"}'
        self.send_response(409)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """A test says nothing."""


def test_an_answer_that_was_not_expected_ends_the_load_with_its_text() -> None:
    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever).start()
        job = LoadJob("127.0.0.1", server.server_port, "lock", CLIENTS, 0.1, CLIENTS)

        done = subprocess.run(LOAD(job), capture_output=True, text=True, timeout=60, check=False)

        server.shutdown()
    assert done.returncode != 0
    assert re.search("(?s)unexpected answer.*409.*", done.stderr)


@pytest.mark.skipif(c_load.find_compiler() is None, reason="the load of locks is written in C")
def test_locks_over_tcp_are_measured_beside_a_skeleton() -> None:
    result = locks_bench.run(rounds=1, seconds=0.1, idle_connections=10)

    assert [row.clients for row in result.rows] == list(locks_bench.CLIENTS)
    assert all(row.rate > 0 and row.skeleton_rate > 0 and row.cpu_us > 0 for row in result.rows)
    assert [target.is_minimum for target in locks_targets(result)] == [True, False, True, False, False]
