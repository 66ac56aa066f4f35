"""`holdfast locks` against a real plane: what it prints and what it frees."""

import json
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest
from typer.testing import CliRunner, Result

from holdfast.cli.main import app
from holdfast.client import Client, LeaseLost
from holdfast.client.testing import TestServer


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    with TestServer("--qrf-disabled", "--tcp-listen", "off") as running:
        yield running


@pytest.fixture
def client(server: TestServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setenv("HOLDFAST_CLIENT_SERVER", server.url)
    with Client(server.url) as opened:
        yield opened


def locks(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["locks", *arguments])


def test_keys_are_listed_with_owner_address_and_age(client: Client) -> None:
    with client.lock("ls/a", owner="worker-1"), client.semaphore("ls/b", 3, owner="worker-2"):
        table = locks("ls", "ls/").stdout.splitlines()
        members = json.loads(locks("ls", "ls/", "--output", "json").stdout)
        limited = json.loads(locks("ls", "ls/", "--limit", "1", "--output", "json").stdout)

    assert table[0].split()[:4] == ["KEY", "SLOTS", "HELD", "WAITING"]
    row = table[1].split()
    assert row[:5] == ["ls/a", "1", "1", "0", "worker-1"]
    assert row[5].startswith("127.0.0.1:")
    assert row[6].endswith("s")
    assert [one["key"] for one in members] == ["ls/a", "ls/b"]
    assert members[1]["holders"][0]["owner"] == "worker-2"
    assert [one["key"] for one in limited] == ["ls/a"]


def test_nothing_is_said_to_be_nothing(client: Client) -> None:
    assert locks("ls", "no-such-prefix/").stdout == "no lock is known\n"


def test_a_key_is_shown_with_all_that_hold_it(client: Client) -> None:
    with client.semaphore("show", 2, owner="one"), client.semaphore("show", 2, owner="two"):
        lines = locks("show", "show").stdout.splitlines()
        members = json.loads(locks("show", "show", "--output", "json").stdout)

    assert lines[0] == "show: 2 slots, 2 held, 0 waiting"
    assert [line.split()[:4] for line in lines[1:]] == [
        ["held", "by", "one", "at"],
        ["held", "by", "two", "at"],
    ]
    assert [one["owner"] for one in members["holders"]] == ["one", "two"]
    assert "token" not in members["holders"][0]


@pytest.mark.parametrize("command", [("show",), ("release", "--force")])
def test_a_key_that_nobody_used_is_an_error(client: Client, command: tuple[str, ...]) -> None:
    result = locks(*command, "nobody")

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "error: nobody: this key has no holder and no waiter, and was not used lately\n"


def test_a_lock_is_released_by_its_token(client: Client) -> None:
    grant = client.lock("by-token").detach()

    first = locks("release", "by-token", "--token", grant.token)
    second = locks("release", "by-token", "--token", grant.token)

    assert first.stdout == "released 1 slot of by-token\n"
    assert second.exit_code == 1
    assert "lock_not_held" in second.stderr


def test_force_frees_what_others_hold(client: Client) -> None:
    held = [client.semaphore("stuck", 2) for _ in range(2)]

    result = locks("release", "stuck", "--force", "--output", "json")

    assert json.loads(result.stdout) == {"key": "stuck", "released": 2}
    for one in held:
        with pytest.raises(LeaseLost):
            one.release()


@pytest.mark.parametrize("options", [(), ("--token", "t", "--force")])
def test_token_and_force_exclude_each_other(client: Client, options: tuple[str, ...]) -> None:
    result = locks("release", "key", *options)

    assert result.exit_code == 2
    assert "--force" in result.stderr


def test_a_server_that_is_away_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_CLIENT_SERVER", "http://127.0.0.1:1")

    result = locks("ls")

    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.splitlines()) == 1


def test_channels_are_listed_with_group_address_and_age(client: Client, server: TestServer) -> None:
    with ExitStack() as stack, httpx.Client(base_url=server.url) as http:
        streams: list[Iterator[str]] = []
        for query in ("pattern=chan.a", "pattern=chan.a&group=g", "pattern=chan.>&group=g"):
            answer = stack.enter_context(http.stream("GET", f"/v1/signals?{query}"))
            streams.append(answer.iter_lines())  # Which ends with its last reference.
            assert next(streams[-1]) == ": listening"
        members = json.loads(locks("channels", "chan.", "--output", "json").stdout)
        lines = locks("channels", "chan.").stdout.splitlines()

    assert lines[0].split() == ["CHANNEL", "GROUP", "LISTENERS", "ADDRESS", "AGE"]
    assert [line.split()[:3] for line in lines[1:]] == [
        ["chan.>", "g", "1"],
        ["chan.a", "-", "1"],
        ["chan.a", "g", "1"],
    ]
    assert all(one["listening"][0]["address"].startswith("127.0.0.1:") for one in members)
    assert locks("channels", "no-such.").stdout == "nobody listens\n"
