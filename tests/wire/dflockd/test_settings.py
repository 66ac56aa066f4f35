"""What each setting of the listener does to its clients, and what is refused at the start."""

import asyncio
import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from holdfast.common.serving.process import listeners_of
from holdfast.common.serving.server import running
from holdfast.common.settings import SettingsError, locks
from holdfast.gateway.app import create_app
from holdfast.gateway.settings import GatewaySettings
from holdfast.leases.protocol.dflockd.listener import secret_of
from tests.wire.dflockd.conftest import lock_plane


def settings_of(environ: Mapping[str, str] | None = None, **flags: Any) -> GatewaySettings:
    around: dict[str, Any] = {
        "_environ": {"HOME": "/nowhere", **(environ or {})},
        "_directory": Path("/nowhere"),
    }
    return GatewaySettings(**around, **flags)


def test_without_any_setting_it_is_dflockds_port_on_this_machine() -> None:
    assert settings_of().tcp_listen == "127.0.0.1:6388"


@pytest.mark.parametrize("value", ["", "off"])
def test_it_is_off_when_the_address_is_empty_or_off(value: str) -> None:
    plane = settings_of(tcp_listen=value, store="mem://")

    assert "tcp" not in {listener.name for listener in listeners_of(create_app(plane), plane)}


def test_the_names_of_dflockds_environment_count_where_ours_are_not_set() -> None:
    environ = {
        "DFLOCKD_HOST": "127.0.0.2",
        "DFLOCKD_PORT": "7000",
        "DFLOCKD_DEFAULT_LEASE_TTL_S": "10",
        "DFLOCKD_LEASE_SWEEP_INTERVAL_S": "2",
        "DFLOCKD_GC_LOOP_SLEEP": "3",
        "DFLOCKD_GC_MAX_UNUSED_TIME": "4",
        "DFLOCKD_MAX_LOCKS": "5",
        "DFLOCKD_MAX_CONNECTIONS": "6",
        "DFLOCKD_MAX_WAITERS": "7",
        "DFLOCKD_MAX_KEYS": "8",
        "DFLOCKD_MAX_LIST_LENGTH": "9",
        "DFLOCKD_READ_TIMEOUT_S": "11",
        "DFLOCKD_WRITE_TIMEOUT_S": "0",
        "DFLOCKD_AUTO_RELEASE_ON_DISCONNECT": "no",
        "DFLOCKD_AUTH_TOKEN": "s3cret",
        "DFLOCKD_SHUTDOWN_TIMEOUT_S": "0",
        "DFLOCKD_DEBUG": "yes",
        "HOLDFAST_TCP_MAX_LOCKS": "50",
    }

    plane = settings_of(environ)

    assert plane.tcp_listen == "127.0.0.2:7000"
    assert (plane.tcp_lease_ttl_s_default, plane.tcp_sweep_interval_s) == (10, 2)
    assert (plane.tcp_gc_interval_s, plane.tcp_gc_idle_s_max) == (3, 4)
    assert (plane.tcp_locks_max, plane.tcp_connections_max, plane.tcp_waiters_max) == (50, 6, 7)
    assert (plane.tcp_keys_max, plane.tcp_list_items_max) == (8, 9)
    assert (plane.tcp_read_timeout_s, plane.tcp_write_timeout_s) == (11, 0)
    assert plane.shutdown_timeout_s == 0
    assert plane.log_level == "debug"
    assert plane.tcp_auto_release is False
    assert plane.tcp_auth_token is not None
    assert "s3cret" not in repr(plane)


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({"tcp_listen": "0.0.0.0:6388"}, "open to the network"),
        ({"tcp_listen": ":6388", "mtls_disabled": True}, "open to the network"),
        ({"tcp_tls_cert": "cert.pem"}, "needs --tcp-tls-key too"),
        ({"tcp_tls_key": "key.pem"}, "needs --tcp-tls-cert too"),
        ({"tcp_listen": "6388"}, "expected host:port"),
        ({"tcp_nodes_listen": "10.0.0.1:6389"}, "open to the network"),
        ({"tcp_nodes_listen": "0.0.0.0:6389"}, "can connect to"),
        ({"tcp_nodes_listen": "6389"}, "expected host:port"),
        ({"tcp_lease_ttl_s_default": "1500ms"}, "whole seconds"),
        ({"tcp_lease_ttl_s_default": 0}, "tcp-default-lease-ttl"),
        ({"tcp_locks_max": 0}, "tcp-max-locks"),
    ],
)
def test_a_start_is_refused_with_the_reason(flags: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        settings_of(**flags)


@pytest.mark.parametrize(
    "given",
    [
        {"tcp_auth_token": " "},
        {"tcp_auth_token": "x" * 257},
        {"tcp_auth_token": "of two\nlines"},
        {"tcp_auth_token_file": "/nowhere/secret"},
        {"tcp_tls_cert": "/x", "tcp_tls_key": "/y"},
    ],
)
async def test_a_secret_or_certificate_that_cannot_be_used_stops_the_start(given: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="tcp"):
        async with lock_plane(**given):
            pass


async def test_a_secret_of_a_whole_line_lets_its_clients_in() -> None:
    async with lock_plane(tcp_auth_token="x" * 256) as plane, plane.clients(1) as (client,):
        assert await client.ask("auth", "_", "x" * 256) == "ok"


async def test_durable_locks_in_a_store_that_is_not_kept_are_warned_of(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with lock_plane(tcp_durable=True):
        pass
    assert "locks.durable.not_kept" in capsys.readouterr().err


async def test_a_text_that_has_ended_does_not_count_as_a_key() -> None:
    settings = {"tcp_keys_max": 2, "tcp_gc_interval_s": 3600}
    async with lock_plane(**settings) as plane, plane.clients(1) as (client,):
        assert await client.ask("kset", "brief", "x 1") == "ok"
        assert await client.ask("kset", "lasting", "x 300") == "ok"
        assert await client.ask("incr", "count", "1") == "error_max_keys"
        async with asyncio.timeout(30):
            while (answer := await client.ask("incr", "count", "1")) == "error_max_keys":
                continue

        assert answer == "ok 1"
        assert await client.ask("kget", "lasting") == "ok x"
        assert await client.ask("rpush", "list", "x") == "error_max_keys"


async def test_stats_fit_into_what_clients_read() -> None:
    """What is held and listened to is told first, and how much found no room."""
    idle, held = 3000, 50
    async with lock_plane(tcp_locks_max=10_000) as plane, plane.clients(2) as (client, listener):
        asked = b"".join(b"l\n<%05d>%b\n0\n" % (number, b"x" * 40) for number in range(idle))
        await client.send(asked)
        tokens = [(await client.line()).split()[1] for _ in range(idle)]
        for number, token in enumerate(tokens):
            await client.send(b"r\n<%05d>%b\n%b\n" % (number, b"x" * 40, token))
            assert await client.line() == b"ok\n"
        for number in range(held):
            await client.lock(f"held-{number}")
        assert await listener.ask("listen", "news.>") == "ok"

        answer = await client.ask("stats")

        assert len(answer.encode()) < 65_536
        told = json.loads(answer.removeprefix("ok "))
        assert len(told["locks"]) == held
        assert told["signal_channels"] == [{"pattern": "news.>", "listeners": 1}]
        assert len(told["idle_locks"]) > 100
        assert len(told["idle_locks"]) + told["omitted"] == idle


def test_what_does_not_parse_in_dflockds_environment_is_ignored() -> None:
    environ = {
        "DFLOCKD_PORT": "dflockd",
        "DFLOCKD_MAX_LOCKS": "many",
        "DFLOCKD_READ_TIMEOUT_S": "1.5",
        "DFLOCKD_WRITE_TIMEOUT_S": "5s",
        "DFLOCKD_SHUTDOWN_TIMEOUT_S": "soon",
        "DFLOCKD_AUTO_RELEASE_ON_DISCONNECT": "maybe",
        "DFLOCKD_DEBUG": "maybe",
    }

    assert settings_of(environ).model_dump() == settings_of().model_dump()


@pytest.mark.parametrize("number", ["9223372036854775808", "-9223372036854775809", "9" * 5000])
def test_a_number_that_dflockd_cannot_read_is_ignored(number: str) -> None:
    """It reads 64 bits."""
    environ = {"DFLOCKD_MAX_LOCKS": number, "DFLOCKD_GC_LOOP_SLEEP": number, "DFLOCKD_PORT": number}

    assert settings_of(environ).model_dump() == settings_of().model_dump()
    assert settings_of({"DFLOCKD_MAX_LOCKS": "09223372036854775807"}).tcp_locks_max == (1 << 63) - 1


@pytest.mark.parametrize(
    ("environ", "flags", "secret"),
    [
        ({"DFLOCKD_AUTH_TOKEN": "theirs"}, {"tcp_auth_token": "flag"}, b"flag"),
        (
            {"DFLOCKD_AUTH_TOKEN": "theirs", "HOLDFAST_TCP_AUTH_TOKEN": "ours"},
            {"tcp_auth_token_file": "/nowhere/secret"},
            b"ours",
        ),
        ({"DFLOCKD_AUTH_TOKEN": "theirs"}, {"tcp_auth_token_file": "/nowhere/secret"}, b"theirs"),
        ({"DFLOCKD_AUTH_TOKEN_FILE": "/nowhere/secret"}, {"tcp_auth_token": "flag"}, b"flag"),
    ],
)
def test_a_secret_wins_over_a_file_and_a_flag_over_the_environment(
    environ: dict[str, str], flags: dict[str, str], secret: bytes
) -> None:
    """Decision 20. A file that does not count is not read."""
    assert secret_of(settings_of(environ, **flags)) == secret


def test_a_flag_wins_over_our_environment_and_that_over_dflockds() -> None:
    environ = {"DFLOCKD_MAX_WAITERS": "1", "DFLOCKD_PORT": "7000"}
    ours = {"HOLDFAST_TCP_MAX_WAITERS": "2", "HOLDFAST_TCP_LISTEN": "127.0.0.1:7001"}

    for given, flags, waiters, port in (
        (environ, {}, 1, 7000),
        ({**environ, **ours}, {}, 2, 7001),
        ({**environ, **ours}, {"tcp_waiters_max": 3, "tcp_listen": "127.0.0.1:7002"}, 3, 7002),
    ):
        plane = settings_of(given, **flags)
        assert (plane.tcp_waiters_max, plane.tcp_listen) == (waiters, f"127.0.0.1:{port}")


@pytest.mark.parametrize(
    "environ", [{"DFLOCKD_PORT": "70000"}, {"DFLOCKD_MAX_LOCKS": "0"}, {"DFLOCKD_MAX_WAITERS": "-1"}]
)
def test_what_parses_in_dflockds_environment_and_is_wrong_stops_the_start(environ: dict[str, str]) -> None:
    with pytest.raises(SettingsError):
        settings_of(environ)


async def test_port_0_is_any_that_is_free() -> None:
    plane = settings_of({"DFLOCKD_PORT": "0"}, store="mem://", listen="127.0.0.1:0")
    app = create_app(plane)
    async with running(app, *listeners_of(app, plane)) as server:
        (address,) = server.addresses_of("tcp")
        assert address[1] != 0


async def test_a_default_address_that_another_server_has_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        monkeypatch.setattr(locks, "TCP_PORT", str(other.getsockname()[1]))
        plane = settings_of(store="mem://", listen="127.0.0.1:0")
        app = create_app(plane)
        async with running(app, *listeners_of(app, plane)) as server:
            assert server.addresses
            assert server.addresses_of("tcp") == []


async def test_an_address_that_was_asked_for_and_is_taken_stops_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        named = settings_of(
            {"DFLOCKD_PORT": str(other.getsockname()[1])}, store="mem://", listen="127.0.0.1:0"
        )
        app = create_app(named)
        with pytest.raises(OSError, match="another server"):
            async with running(app, *listeners_of(app, named)):
                pass
        with pytest.raises(OSError, match="another server"):
            async with lock_plane(tcp_listen=f"127.0.0.1:{other.getsockname()[1]}"):
                pass


async def test_a_client_must_send_the_secret_first_and_in_time() -> None:
    async with lock_plane(tcp_auth_token="s3cret", tcp_read_timeout_s=0.2) as plane:
        async with plane.clients(3) as (silent, wrong, long):
            assert await wrong.ask("auth", "_", "s3cretx") == "error_auth"
            assert await wrong.is_closed()
            await long.send(b"x" * 257 + b"\n")
            for client in (silent, long):
                assert await client.line() == b"error_auth\n"
                assert await client.is_closed()


async def test_keys_of_values_have_a_limit_and_so_have_lists() -> None:
    async with lock_plane(tcp_keys_max=3, tcp_list_items_max=2) as plane, plane.clients(1) as (client,):
        assert await client.ask("incr", "a", "1") == "ok 1"
        assert await client.ask("kset", "b", "x 0") == "ok"
        assert await client.ask("rpush", "c", "one") == "ok 1"
        for command, argument in (("incr", "1"), ("cset", "1"), ("kset", "x 0"), ("lpush", "x")):
            assert await client.ask(command, "d", argument) == "error_max_keys"
        assert await client.ask("rpush", "c", "two") == "ok 2"
        assert await client.ask("rpush", "c", "three") == "error_list_full"
        assert await client.ask("incr", "a", str((1 << 63) - 1)) == "error"
        assert await client.ask("get", "a") == "ok 1"


async def test_idle_counters_of_zero_are_forgotten_and_texts_without_end_are_not() -> None:
    async with lock_plane(tcp_gc_idle_s_max=0.05, tcp_gc_interval_s=0.02) as plane:
        async with plane.clients(1) as (client,):
            await client.ask("incr", "a", "0")
            await client.ask("kset", "b", "kept")
            while '"counters":[]' not in await client.ask("stats"):
                continue
            assert await client.ask("kget", "b") == "ok kept"


async def test_a_client_that_takes_no_answers_is_cut_off() -> None:
    async with lock_plane(tcp_write_timeout_s=0.1) as plane, plane.clients(2) as (deaf, other):
        for number in range(200):
            await other.ask("kset", f"{number:0200}", "x 0")
        deaf.stop_reading()
        with pytest.raises(ConnectionError):
            while True:
                await deaf.send(b"stats\n_\n_\n" * 100)
                await asyncio.sleep(0.01)  # Until the socket tells.
        assert await other.ask("ping") == "ok"
