"""The listener of dflockd's protocol in processes of their own: what SIGTERM does to its clients, byte for byte."""

import asyncio
import signal
from pathlib import Path

import pytest

from tests.infra.program import free_ports
from tests.system.cli import Server, serving
from tests.wire.dflockd.conftest import Client
from tests.wire.dflockd.recording import Step
from tests.wire.dflockd.test_recordings import RECORDED, Conversation


class Listener:
    """Where a process listens."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def connect(self) -> Client:
        return Client(*await asyncio.open_connection("127.0.0.1", self.port))


class StoppedConversation(Conversation):
    """The recording that notes a signal and a connection that is refused."""

    def __init__(self, listener: Listener, server: Server) -> None:
        super().__init__(RECORDED["C61"], listener)
        self._listener = listener
        self._server = server
        self.notes: list[str] = []

    async def _take(self, at: int, step: Step) -> None:
        if step.kind != "note":
            await super()._take(at, step)
            return
        self.notes.append(step.note)
        if step.note == "SIGTERM":
            self._server.process.send_signal(signal.SIGTERM)
        else:
            with pytest.raises(ConnectionRefusedError):
                await self._listener.connect()


async def hold_the_recording(folder: Path, *command: str, is_durable: bool) -> None:
    main, tcp = free_ports(2)
    addresses = ("--listen", f"127.0.0.1:{main}", "--tcp-listen", f"127.0.0.1:{tcp}")
    durable = ("--tcp-durable",) if is_durable else ()
    with serving(folder, *command, *addresses, *durable, "--shutdown-timeout", "2s") as server:
        listener = Listener(tcp)
        await until_it_decides(listener)
        conversation = StoppedConversation(listener, server)

        await conversation.hold()

        assert conversation.notes == ["SIGTERM", "connection refused"]
        assert await asyncio.to_thread(server.process.wait, 30) == 0


async def until_it_decides(listener: Listener) -> None:
    """A node that shares its store has no key for a moment."""
    client = await listener.connect()
    async with asyncio.timeout(30):
        while await client.ask("get", "nothing") != "ok 0":
            continue
    client.close()


@pytest.mark.parametrize("is_durable", [False, True])
async def test_the_recorded_stop_goes_the_same_way(tmp_path: Path, is_durable: bool) -> None:
    """Recording C61, with the signal itself."""
    store = f"disk://{tmp_path / 'store'}" if is_durable else "mem://"

    await hold_the_recording(tmp_path, "--store", store, is_durable=is_durable)


@pytest.mark.parametrize("is_durable", [False, True])
async def test_the_recorded_stop_of_a_process_of_leases_goes_the_same_way(
    tmp_path: Path, postgres_url: str, is_durable: bool
) -> None:
    """`holdfast serve leases` has the listener."""
    flags = ("--store", postgres_url, "--internal-secret", "s" * 32, "--tcp-node-ttl", "1s")

    await hold_the_recording(tmp_path, "leases", *flags, is_durable=is_durable)
