"""`holdfast bench` runs against a plane."""

import asyncio
import json
from contextlib import suppress

import pytest
from typer.testing import CliRunner

from holdfast.cli.bench.command import app
from holdfast.cli.bench.load import (
    Load,
    LoadJob,
)


@pytest.mark.parametrize("kind", ["lock", "attachments"])
def test_a_short_run_prints_all_its_figures_as_json(kind: str) -> None:
    result = CliRunner().invoke(app, [kind, "-c", "2", "-s", "0.2", "--keys", "10", "--output", "json"])

    assert result.exit_code == 0, result.output
    members = json.loads(result.stdout)
    assert members["operations"] > 0
    assert members["raw_syncs_per_s"] > 0
    assert 0 < members["syncs_per_commit"] <= 1


async def test_so_many_operations_are_under_way_at_once() -> None:
    waiting: list[asyncio.StreamWriter] = []
    is_full = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """No call is answered before three are there at once."""
        while await reader.readuntil(b"\r\n\r\n"):
            waiting.append(writer)
            if len(waiting) == 3:
                is_full.set()
            await is_full.wait()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await answer(reader, writer)
        writer.close()

    async with await asyncio.start_server(served, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        load = Load(LoadJob("127.0.0.1", port, "echo", concurrency=3, seconds=0.1, keys=1))

        result = await load.run()

    assert len(set(waiting)) == 3
    assert result.operations > 0
