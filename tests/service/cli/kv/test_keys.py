"""`holdfast kv put|get|del|compact`: what they print, as etcdctl does."""

import base64
import json
import os
import pty
import subprocess

import pytest

from holdfast.client import Client
from tests.service.cli.kv.commands import NO_LEASE, PROGRAM, filled, kv, kv_json, value_of

# -- put


def test_put_says_ok_and_what_was_there_before() -> None:
    assert kv("put", "a", "1").stdout == "OK\n"
    assert kv("put", "a", "2", "--prev-kv").stdout == "OK\na\n1\n"


@pytest.mark.parametrize("arguments", [("put", "a"), ("put", "a", "-")])
def test_a_value_is_read_from_standard_input_to_the_last_byte(
    client: Client, arguments: tuple[str, ...]
) -> None:
    assert kv(*arguments, given=b"\xff\0line\n").stdout == "OK\n"

    assert value_of(client, "a") == b"\xff\0line\n"


def test_no_value_is_read_from_a_terminal_unless_it_is_asked_for() -> None:
    shell, terminal = pty.openpty()
    try:
        done = subprocess.run(
            [*PROGRAM, "put", "a"], stdin=terminal, capture_output=True, text=True, check=False
        )
    finally:
        os.close(shell)
        os.close(terminal)

    assert (done.returncode, done.stderr) == (2, "error: no value: give VALUE, or - for standard input\n")


def test_put_binds_a_key_to_a_lease_and_keeps_what_it_is_told_to_keep(client: Client) -> None:
    lease = client.kv.leases.grant(60).id
    kv("put", "a", "1", "--lease", f"{lease:x}")

    kv("put", "a", "2", "--ignore-lease")
    bound = client.kv.get("a").first
    kv("put", "a", "--ignore-value")
    freed = client.kv.get("a").first

    assert bound is not None
    assert freed is not None
    assert (bound.value, bound.lease, freed.value, freed.lease) == (b"2", lease, b"2", 0)


@pytest.mark.parametrize("lease", ["zz", "-1", "0", "8000000000000000"])
def test_a_lease_that_is_none_is_named(lease: str) -> None:
    result = kv("put", "a", "1", f"--lease={lease}")

    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {lease!r} is no lease")


def test_what_the_server_refuses_is_one_line() -> None:
    result = kv("put", "a", "1", "--lease", NO_LEASE)

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "error: etcdserver: requested lease not found\n"


# -- get


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (("k/a",), ["k/a", "1"]),
        (("none",), []),
        (("k/", "--prefix"), ["k/a", "1", "k/b", "2", "k/c", "3"]),
        (("k/a", "k/c"), ["k/a", "1", "k/b", "2"]),
        (("k/b", "--from-key"), ["k/b", "2", "k/c", "3"]),
        (("", "--from-key"), ["k/a", "1", "k/b", "2", "k/c", "3"]),
        (("", "--prefix", "--limit", "1"), ["k/a", "1"]),
        (("k/", "--prefix", "--order", "descend", "--keys-only"), ["k/c", "k/b", "k/a"]),
        (("k/", "--prefix", "--sort-by", "CREATE", "--keys-only"), ["k/c", "k/a", "k/b"]),
        (("k/", "--prefix", "--sort-by", "modify", "--order", "DESCEND", "--limit", "1"), ["k/b", "2"]),
        (
            ("k/", "--prefix", "--sort-by", "VALUE", "--order", "DESCEND", "--print-value-only"),
            ["3", "2", "1"],
        ),
        (("k/", "--prefix", "--sort-by", "VERSION", "--limit", "0", "--keys-only"), ["k/a", "k/b", "k/c"]),
        (("k/", "--prefix", "--count-only"), ["3"]),
        (("k/a", "--hex"), ["\\x6b\\x2f\\x61", "\\x31"]),
    ],
)
def test_get_prints_a_line_for_each_key_and_each_value(
    client: Client, arguments: tuple[str, ...], lines: list[str]
) -> None:
    filled(client)

    assert kv("get", *arguments).stdout.splitlines() == lines


def test_get_reads_the_past(client: Client) -> None:
    revision = filled(client) + 2
    client.kv.put("k/a", "new")

    assert kv("get", "k/a", "--rev", str(revision)).stdout == "k/a\n1\n"
    assert kv("get", "k/a", "--rev", "0").stdout == "k/a\nnew\n"


def test_json_has_base64_and_whole_numbers(client: Client) -> None:
    put = client.kv.put(b"\xff", b"\0")

    result = kv("get", "\udcff", "--output", "json")
    members = json.loads(result.stdout)

    assert members["kvs"] == [
        {
            "key": base64.b64encode(b"\xff").decode(),
            "create_revision": put.revision,
            "mod_revision": put.revision,
            "version": 1,
            "value": base64.b64encode(b"\0").decode(),
        }
    ]
    assert type(members["header"]["cluster_id"]) is int


def test_bytes_that_are_no_text_leave_as_they_are_but_to_a_terminal(client: Client) -> None:
    client.kv.put(b"\xff", b"\x1b[31m")

    piped = kv("get", "\udcff").stdout_bytes
    shown = on_a_terminal("get", b"\xff")

    assert piped == b"\xff\n\x1b[31m\n"
    assert shown.splitlines() == [b"\\xff", b"\\x1b[31m"]


def on_a_terminal(*arguments: str | bytes) -> bytes:
    """What the program prints there."""
    shell, terminal = pty.openpty()
    try:
        subprocess.run([*PROGRAM, *arguments], stdout=terminal, check=True)
        return os.read(shell, 4096)
    finally:
        os.close(shell)
        os.close(terminal)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("get", "a", "b", "--prefix"), "one of range_end, prefix and from_key"),
        (("del", "a", "--prefix", "--from-key"), "one of range_end, prefix and from_key"),
        (
            ("get", "a", "--keys-only", "--count-only"),
            "one of --keys-only, --count-only and --print-value-only",
        ),
        (("get", ""), "key is not provided"),
        (("get", "a", "--rev", "999999"), "required revision is a future revision"),
    ],
)
def test_what_makes_no_sense_is_one_line(arguments: tuple[str, ...], hint: str) -> None:
    result = kv(*arguments)

    assert result.exit_code in (1, 2)
    assert hint in result.stderr
    assert len(result.stderr.splitlines()) == 1


# -- del


def test_del_prints_how_many_are_gone_and_what_they_were(client: Client) -> None:
    filled(client)

    assert kv("del", "none").stdout == "0\n"
    assert kv("del", "k/a", "--prev-kv").stdout == "1\nk/a\n1\n"
    assert kv("del", "k/a", "k/c").stdout == "1\n"
    client.kv.put("k/d", "4")
    assert kv("del", "k/", "--prefix").stdout == "2\n"
    client.kv.put("l", "5")
    assert kv_json("del", "k", "--from-key")["deleted"] == 1


# -- compact


def test_compact_forgets_what_was_before(client: Client) -> None:
    revision = filled(client) + 3

    members = kv_json("compact", str(revision), "--physical")

    assert members == {"header": {"revision": revision}}
    assert "has been compacted" in kv("get", "k/a", "--rev", str(revision - 1)).stderr
    assert kv("get", "k/a", "--rev", str(revision)).stdout == "k/a\n1\n"
