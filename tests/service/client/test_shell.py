"""A shell that works with the plane: acquire, evaluate, go on; and `holdfast lock` around a command."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.client import Client
from holdfast.client.testing import TestServer
from tests.service.client.shell import shell


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    with TestServer("--qrf-disabled") as running:
        yield running


def test_a_lease_is_taken_used_and_released(server: TestServer, tmp_path: Path) -> None:
    script = """
    eval "$(holdfast client acquire --key orders --ttl 1m --owner me)"
    echo '{"n": 1.10}' | holdfast client update > /dev/null
    holdfast client keepalive --ttl 45s --output text | cut -d: -f1
    holdfast client get 2> /dev/null
    holdfast client describe --output text | grep owner
    holdfast client release
    holdfast client get --public --type raw 2> /dev/null
    """

    done = shell(server, tmp_path, script)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "expires_at_unix",
        "{",
        '  "n": 1.10',
        "}",
        "owner: me",
        '{"released": true}',
        '{"n":1.10}',
    ]


def test_a_command_under_lock_stages_and_commits(server: TestServer, tmp_path: Path) -> None:
    add = "holdfast client set /n++"

    done = shell(
        server, tmp_path, f"holdfast lock counter -- {add}; holdfast lock counter -- sh -c '{add}; false'"
    )

    assert done.returncode == 1
    with Client(server.url) as client:
        assert client.load("counter") == {"n": 1}
        assert client.describe("counter").lease_id == ""


def test_an_error_is_one_line_and_status_1(server: TestServer, tmp_path: Path) -> None:
    done = shell(server, tmp_path, "holdfast client acquire --key 'no spaces'")

    assert done.returncode == 1
    assert done.stderr.startswith("error: invalid_key (")
    assert done.stderr.count("\n") == 1
