"""Queries of the real plane, through the SDK and a shell."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.client import AsyncClient, CasMismatch, Client, RequestRefused
from holdfast.client.testing import TestServer, inprocess
from tests.service.client.shell import shell


@pytest.fixture
async def client() -> AsyncIterator[AsyncClient]:
    async with inprocess(qrf_disabled=True) as connected:
        yield connected


async def fill(client: AsyncClient, count: int) -> list[str]:
    keys = [f"orders/{number:03}" for number in range(count)]
    for number, key in enumerate(keys):
        async with client.acquire(key) as session:
            await session.save({"n": number, "status": "open" if number % 2 else "done"})
    return keys


async def test_pages_are_followed_without_doubles_or_holes(client: AsyncClient) -> None:
    keys = await fill(client, 25)

    found = client.query('/status="open"', limit=5)
    matching = [key async for key in found]
    rows = [row async for row in client.query("", limit=10, documents=True)]

    assert matching == keys[1::2]
    assert (found.mode, found.cursor) == ("keys", "")
    assert [row.key for row in rows] == keys
    assert [row.json()["n"] for row in rows] == list(range(25))
    assert {(row.namespace, row.version) for row in rows} == {("default", 1)}


async def test_one_page_can_be_continued_by_its_cursor(client: AsyncClient) -> None:
    keys = await fill(client, 5)

    first = client.query("", limit=2, all_pages=False)
    head = [key async for key in first]
    rest = [row.key async for row in client.query("", cursor=first.cursor, documents=True)]

    assert head + rest == keys


async def test_a_large_document_arrives_whole(client: AsyncClient) -> None:
    async with client.acquire("large") as session:
        await session.save({"text": "x" * 3_000_000, "n": 1})

    rows = [row async for row in client.query("/n=1", documents=True)]

    assert [len(row.json()["text"]) for row in rows] == [3_000_000]


async def test_a_commit_is_seen_without_a_flush_and_a_rollback_never(client: AsyncClient) -> None:
    async with client.acquire("k") as session:
        await session.save({"n": 1})
        before = [key async for key in client.query("/n=1")]
    after = [key async for key in client.query("/n=1")]
    session = await client.acquire("k")
    await session.save({"n": 2})
    await session.release(rollback=True)

    assert (before, after) == ([], ["k"])
    assert [key async for key in client.query("/n=2")] == []


async def test_what_is_wrong_is_refused_with_its_code(client: AsyncClient) -> None:
    wrong: list[dict[str, Any]] = [{"cursor": "nonsense"}, {"engine": "magic"}, {"refresh": "never"}]
    for asked in wrong:
        with pytest.raises(RequestRefused) as refused:
            [key async for key in client.query("", **asked)]
        assert refused.value.code == f"invalid_{next(iter(asked))}"


async def test_a_namespace_is_configured_by_who_has_seen_it_last(client: AsyncClient) -> None:
    before = await client.namespace_config(namespace="n")
    stored = await client.set_namespace_config(namespace="n", preferred_engine="scan")
    again = await client.set_namespace_config(namespace="n", fallback_engine="scan", if_match=stored.etag)
    with pytest.raises(CasMismatch) as refused:
        await client.set_namespace_config(namespace="n", fallback_engine="none", if_match=stored.etag)

    assert (before.etag, stored.preferred_engine) == ("", "scan")
    assert (again.preferred_engine, again.fallback_engine) == ("scan", "scan")
    assert refused.value.code == "namespace_config_conflict"
    assert await client.namespace_config(namespace="n") == again


async def test_a_flush_is_accepted(client: AsyncClient) -> None:
    waited, later = await client.flush_index("wait"), await client.flush_index()

    assert (waited.is_flushed, waited.is_pending) == (True, False)
    assert later.is_accepted
    assert later.flush_id


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    with TestServer("--qrf-disabled") as running:
        yield running


def test_a_shell_finds_what_it_has_set(server: TestServer, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("42")
    script = """
    for n in 1 2 3; do
      holdfast lock "jobs/$n" -- holdfast client set "/n=$n" /status=open > /dev/null
    done
    holdfast lock jobs/3 -- holdfast client set file:/note=note.txt /status=done > /dev/null
    holdfast client query '/status="open"'
    holdfast client query --all --limit 1 -o text '/n>=2'
    holdfast client query -d '/note="42"'
    holdfast client query -F out ''
    """

    done = shell(server, tmp_path, script)

    assert (done.returncode, done.stderr) == (0, "")
    *lines, document = done.stdout.splitlines()
    assert lines == ['["jobs/1","jobs/2"]', "jobs/2", "jobs/3"]
    assert json.loads(document) == {"n": 3, "status": "done", "note": "42"}
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "jobs-1.json",
        "jobs-2.json",
        "jobs-3.json",
    ]


def test_a_shell_configures_a_namespace(server: TestServer, tmp_path: Path) -> None:
    script = """
    holdfast namespace set query -n shell --preferred index -o text | head -2
    holdfast client namespace get query -n shell | grep -c etag
    holdfast index flush -n shell -m wait -o text | grep flushed
    """

    done = shell(server, tmp_path, script)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "Namespace: shell",
        "Preferred query engine: index",
        "1",
        "flushed: true",
    ]


def test_a_selector_that_the_server_refuses_is_one_line(server: TestServer) -> None:
    with Client(server.url) as client, pytest.raises(RequestRefused) as refused:
        list(client.query({"eq": {"field": "no-slash", "value": "x"}}))
    assert refused.value.code == "invalid_selector"
