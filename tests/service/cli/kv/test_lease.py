"""`holdfast kv lease`: leases that keys end with."""

import subprocess

import pytest

from holdfast.client import Client
from tests.service.cli.kv.commands import NO_LEASE, PROGRAM, kv, kv_json, value_of


def granted() -> str:
    return kv("lease", "grant", "60").stdout.split()[1]


def test_a_lease_is_granted_looked_at_and_revoked(client: Client) -> None:
    result = kv("lease", "grant", "60")
    name = result.stdout.split()[1]
    client.kv.put("a", "1", lease=int(name, 16))
    kept = kv("lease", "keep-alive", name, "--once")
    looked = kv("lease", "timetolive", name)
    with_keys = kv("lease", "timetolive", name, "--keys")
    revoked = kv("lease", "revoke", name)

    assert len(name) == 16
    assert result.stdout == f"lease {name} granted with TTL(60s)\n"
    assert kept.stdout == f"lease {name} keepalived with TTL(60)\n"
    assert looked.stdout.startswith(f"lease {name} granted with TTL(60s), remaining(")
    assert "attached keys" not in looked.stdout
    assert with_keys.stdout.endswith(", attached keys([a])\n")
    assert revoked.stdout == f"lease {name} revoked\n"
    assert value_of(client, "a") is None
    assert kv("lease", "timetolive", name).stdout == f"lease {name} already expired\n"


def test_leases_are_listed(client: Client) -> None:
    for number in client.kv.leases.list():
        client.kv.leases.revoke(number)
    name = granted()

    assert kv("lease", "list").stdout == f"found 1 lease\n{name}\n"
    assert kv_json("lease", "list") == {"leases": [{"ID": int(name, 16)}]}


def test_leases_are_told_as_json() -> None:
    made = kv_json("lease", "grant", "60")
    name = f"{made['ID']:x}"
    state = kv_json("lease", "timetolive", name, "--keys")
    kept = kv_json("lease", "keep-alive", name, "--once")
    ended = kv_json("lease", "revoke", name)

    assert made["TTL"] == 60
    assert (state["ID"], state["grantedTTL"]) == (made["ID"], 60)
    assert kept == {"ID": made["ID"], "TTL": 60}
    assert list(ended) == ["header"]


def test_a_lease_is_kept_until_it_is_gone(client: Client) -> None:
    name = kv("lease", "grant", "3").stdout.split()[1]
    with subprocess.Popen(
        [*PROGRAM, "lease", "keep-alive", name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = f"lease {name} keepalived with TTL(3)\n"
        assert [process.stdout.readline() for _ in range(3)] == [line] * 3
        client.kv.leases.revoke(int(name, 16))
        said = process.stderr.read()

    assert (process.returncode, said) == (1, f"error: lease {name} expired or revoked\n")


@pytest.mark.parametrize("command", [("revoke",), ("keep-alive", "--once")])
def test_a_lease_that_is_not_there_is_an_error(command: tuple[str, ...]) -> None:
    result = kv("lease", command[0], NO_LEASE, *command[1:])

    assert (result.exit_code, result.stdout) == (1, "")
    assert len(result.stderr.splitlines()) == 1
