"""Every conversation that was recorded from dflockd, held with a plane: the same bytes, line by line, in the same order."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.wire.dflockd.conftest import Client, lock_plane
from tests.wire.dflockd.recording import Recording, Step, recordings

RECORDED = recordings()
SETTINGS: dict[str, dict[str, Any]] = {
    "C31": {"tcp_auth_token": "s3cret"},
    "C32": {"tcp_auth_token": "s3cret"},
    "C33": {"tcp_auth_token": "s3cret"},
    "C34": {"tcp_auth_token": "s3cret"},
    "C53": {"tcp_locks_max": 2, "tcp_waiters_max": 1},
    "C54": {"tcp_read_timeout_s": 1},
    "C55": {"tcp_read_timeout_s": 1},
    "C56": {"tcp_read_timeout_s": 1},
    "C57": {"tcp_connections_max": 1},
    "C58": {"tcp_auto_release": False},
    "C59": {"tcp_gc_idle_s_max": 1, "tcp_gc_interval_s": 0.2, "tcp_lease_ttl_s_default": 3},
    "C60": {"tcp_lease_ttl_s_default": 3},
}
# Seconds before a step, which the recording leaves out.
PAUSES: dict[str, dict[int, float]] = {
    "C10": {2: 1.05},
    "C18": {2: 1.05},
    "C19": {2: 2.2},
    "C21": {6: 2.2},
    "C50": {28: 1.05},
    "C55": {1: 0.6, 2: 0.6},
    "C59": {6: 1.5},
}
# Where the sweep must not have come first.
NO_SWEEP: dict[str, dict[str, Any]] = {name: {"tcp_sweep_interval_s": 60} for name in ("C10", "C18")}
# A sender that also listens may get its push before or after its answer.
SWAPPED = {("C42", 3): 4, ("C42", 4): 3}
OTHERWISE: dict[tuple[str, int], bytes] = {
    ("C21", 10): b"error_lease_expired\n",  # The original tells of a token that is dead.
    ("C52", 1): b"ok\n",  # Newer clients use `ping` to stay connected.
}
# Ends by SIGTERM, in a test of its own.
LEFT_OUT = {"C61"}
_TOKEN = re.compile(rb"\b[0-9a-f]{32}\b")


def test_all_recordings_are_there() -> None:
    assert list(RECORDED) == [f"C{number}" for number in range(1, 62)]


# They look at everything there is; they hear what others send.
STATS = ("C35", "C36", "C39")
SIGNALS = [name for name in (f"C{number}" for number in range(37, 49)) if name not in STATS]
OWN = (*SETTINGS, *NO_SWEEP)
TOGETHER = [name for name in RECORDED if name not in {*LEFT_OUT, *OWN, *STATS, *SIGNALS}]
"""Those that know nothing of each other, over a plane with default settings."""
NAMES = [name for name in RECORDED if name not in LEFT_OUT]


@pytest.mark.parametrize("name", NAMES)
async def test_a_recorded_conversation_goes_the_same_way(name: str) -> None:
    async with lock_plane(**SETTINGS.get(name, {}), **NO_SWEEP.get(name, {})) as plane:
        await Conversation(RECORDED[name], plane).hold()


async def test_recorded_conversations_go_the_same_way_when_locks_are_durable(tmp_path: Path) -> None:
    async with lock_plane(store=f"disk://{tmp_path / 'store'}", tcp_durable=True) as plane:
        await asyncio.gather(*(Conversation(RECORDED[name], plane).hold() for name in TOGETHER))


@pytest.mark.parametrize(
    "name", [name if name in OWN else pytest.param(name, marks=pytest.mark.long) for name in NAMES]
)
async def test_a_recorded_conversation_goes_the_same_way_when_locks_are_durable(
    name: str, tmp_path: Path
) -> None:
    durable = {"store": f"disk://{tmp_path / 'store'}", "tcp_durable": True}
    async with lock_plane(**durable, **SETTINGS.get(name, {}), **NO_SWEEP.get(name, {})) as plane:
        await Conversation(RECORDED[name], plane).hold()


class Connects(Protocol):
    """A plane, here or in another process."""

    async def connect(self) -> Client: ...


class Conversation:
    """What was recorded, with the tokens of this plane in place of those in the recording."""

    def __init__(self, recording: Recording, plane: Connects) -> None:
        self._recording = recording
        self._plane = plane
        self._clients: dict[str, Client] = {}
        self._tokens: dict[bytes, bytes] = {}

    async def hold(self) -> None:
        try:
            await self._hold()
        finally:
            for client in self._clients.values():
                client.close()

    async def _hold(self) -> None:
        pauses = PAUSES.get(self._recording.name, {})
        for at, step in enumerate(self._recording.steps):
            if at in pauses:
                await asyncio.sleep(pauses[at])
            try:
                await self._take(at, step)
            except AssertionError as error:
                raise AssertionError(f"{self._recording.name}, step {at}: {step}: {error}") from error

    async def _take(self, at: int, step: Step) -> None:
        if step.kind == "note":
            return
        client = self._clients.get(step.who)
        if client is None:
            client = self._clients[step.who] = await self._plane.connect()
        if step.kind == "send":
            await client.send(_TOKEN.sub(lambda match: self._tokens.get(match[0], match[0]), step.data))
            await self._until_taken(at, step)
        elif step.kind == "receive":
            recorded = self._recording.steps[SWAPPED.get((self._recording.name, at), at)].data
            self._compare(OTHERWISE.get((self._recording.name, at), recorded), await client.line())
        elif step.kind == "silent":
            with pytest.raises(TimeoutError):
                await client.line(0.1)
        elif step.kind == "closed":
            assert await client.is_closed()
        else:
            client.close()

    async def _until_taken(self, at: int, step: Step) -> None:
        """A request that blocks has reached the server before another connection sends the next one."""
        following = self._recording.steps[at + 1 :][:1]
        if following and following[0].who != step.who:
            await asyncio.sleep(0.02)

    def _compare(self, recorded: bytes, live: bytes) -> None:
        if recorded.startswith(b'ok {"connections"'):
            assert _stats(live) == _stats(recorded)
            return
        old, new = _TOKEN.findall(recorded), _TOKEN.findall(live)
        assert len(old) == len(new), live
        for before, now in zip(old, new, strict=True):
            assert self._tokens.setdefault(before, now) == now, "a token that was not given before"
        assert _TOKEN.sub(b"TOKEN", live) == _TOKEN.sub(b"TOKEN", recorded)


def _stats(line: bytes) -> dict[str, Any]:
    """Without what is a matter of time; keys in the order of the wire."""
    text = line.decode().removeprefix("ok ").replace("[...]", "[]").replace("\\\\u", "\\u")
    members: dict[str, Any] = json.loads(text)
    assert list(members) == [
        "connections",
        "locks",
        "semaphores",
        "idle_locks",
        "idle_semaphores",
        "counters",
        "kv_entries",
        "lists",
        "signal_channels",
    ]
    for kind in ("locks", "idle_locks", "idle_semaphores"):
        for item in members[kind]:
            item.pop("lease_expires_in_s", None)
            item.pop("idle_s", None)
            item.pop("owner_conn_id", None)  # The original had served others before.
    members["signal_channels"] = sorted(members["signal_channels"] or [], key=json.dumps)
    return members
