"""The processes that read large documents: what they do when their server or their terminal goes away."""

import os
import signal
import subprocess
import sys

import pytest

from holdfast.state.layer.worker_process import WorkerProcess

DOCUMENT = b'{"name":"large","values":[1,2,3]}'
QUERY_ORDER = b'{"selector":{"eq":{"field":"/name","value":"large"}},"now_ns":0}\n'
MUTATION_ORDER = b'{"expressions":["/name=small"],"now_ns":0}\n'


@pytest.mark.parametrize(
    ("module", "sent"),
    [
        ("layer.index.worker", b""),
        ("layer.index.worker", b"\n100\n" + DOCUMENT),
        ("layer.query.worker", b""),
        ("layer.query.worker", QUERY_ORDER + b"100\n" + DOCUMENT),
        ("layer.document.mutation.worker", b""),
    ],
)
def test_a_worker_whose_server_dies_while_it_sends_ends_without_a_word(module: str, sent: bytes) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", f"holdfast.state.{module}"], input=sent, capture_output=True, check=False
    )

    assert (ended.stdout, ended.stderr) == (b"", b"")


@pytest.mark.parametrize(
    ("module", "sent"),
    [
        ("layer.index.worker", b"\n%d\n" % len(DOCUMENT) + DOCUMENT),
        ("layer.query.worker", QUERY_ORDER + b"%d\n" % len(DOCUMENT) + DOCUMENT),
        ("layer.document.mutation.worker", MUTATION_ORDER + DOCUMENT),
    ],
)
def test_a_worker_whose_server_died_before_the_answer_ends_without_a_word(module: str, sent: bytes) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", f"holdfast.state.{module}"],
            input=sent,
            stdout=writing,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writing)

    assert ended.returncode == -signal.SIGPIPE
    assert ended.stderr == b""


async def test_ctrl_c_at_the_terminal_of_a_server_is_not_for_its_workers() -> None:
    process = WorkerProcess((sys.executable, "-c", "import os; print(os.getpgrp())"))
    await process.open()
    try:
        assert int(await process.read_line(32)) != os.getpgrp()
    finally:
        await process.aclose()
