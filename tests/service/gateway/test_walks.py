"""The walks of ARCHITECTURE.md: which files of ours an acquire, a release and an enqueue cross, counted by a trace."""

import asyncio
import http.client
import json
import math
import re
import socket
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Self
from urllib.parse import urlsplit

import pytest

from holdfast.common.serving.server import running
from holdfast.gateway.app import create_app
from holdfast.gateway.settings import GatewaySettings
from holdfast.storage.disk import fsync_policy, journal
from tests.infra.gateway import LOOPBACK, url_of
from tests.unit.test_tree import ROOT

WALKS = {"acquire": 18, "release": 24, "enqueue": 23}
"""At most so many files, of all threads: half of what they were."""
WARM_UP = 25
"""Fills what is filled once (tables of children, loaded queues), and brings the journal to sync by the loop."""
OURS = "/src/holdfast/"
JSON = {"content-type": "application/json"}
MULTIPART = {"content-type": "multipart/related; boundary=b"}
MESSAGE = (
    b'--b\r\ncontent-disposition: form-data; name="meta"\r\ncontent-type: application/json\r\n\r\n{"queue":"q"}\r\n'
    b'--b\r\ncontent-disposition: form-data; name="payload"\r\ncontent-type: text/plain\r\n\r\nhello\r\n--b--\r\n'
)


class Tracer:
    """Notes the files of ours that are entered, by the event loop's thread and by all that begin within its block."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._is_on = False

    def _enter(self, frame: FrameType, event: str, _: object) -> None:
        if self._is_on and event == "call":
            _, ours, name = frame.f_code.co_filename.partition(OURS)
            if ours:
                self._files.add(name)

    def __enter__(self) -> Self:
        threading.setprofile(self._enter)
        return self

    def __exit__(self, *exc: object) -> None:
        threading.setprofile(None)

    @contextmanager
    def noting(self) -> Iterator[set[str]]:
        """The files that are entered within the block."""
        self._files = files = set[str]()
        self._is_on = True
        sys.setprofile(self._enter)
        try:
            yield files
        finally:
            sys.setprofile(None)
            self._is_on = False


class Worker:
    """A client with one connection, in a thread of its own: nothing of it is seen by the trace."""

    def __init__(self, url: str, tracer: Tracer) -> None:
        self._tracer = tracer
        address = urlsplit(url)
        assert address.hostname is not None and address.port is not None
        self._socket = socket.create_connection((address.hostname, address.port))

    async def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> dict[str, object]:
        return await asyncio.to_thread(self._post, path, body, headers)

    def _post(self, path: str, body: bytes, headers: Mapping[str, str]) -> dict[str, object]:
        fields = {"host": "localhost", "content-length": str(len(body)), **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        # In one piece: what arrives in two takes one more file, on a busy machine only.
        self._socket.sendall(f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        answer = http.client.HTTPResponse(self._socket)
        answer.begin()
        text = answer.read()
        assert answer.status == 200, text
        told: dict[str, object] = json.loads(text)
        return told

    async def cycle(self, key: str) -> dict[str, set[str]]:
        """Acquire, update, release and enqueue; the files of each."""
        asked = {"key": key, "owner": "worker", "ttl_seconds": 30, "block_seconds": -1}
        with self._tracer.noting() as acquire:
            lease = await self.post("/v1/acquire", json.dumps(asked).encode(), JSON)
        claim = {
            "X-Lease-ID": str(lease["lease_id"]),
            "X-Txn-ID": str(lease["txn_id"]),
            "X-Fencing-Token": str(lease["fencing_token"]),
        }
        await self.post(f"/v1/update?key={key}", b'{"n":1}', claim)
        body = json.dumps({name: lease[name] for name in ("key", "lease_id", "txn_id")}).encode()
        with self._tracer.noting() as release:
            await self.post("/v1/release", body, {**JSON, **claim})
        with self._tracer.noting() as enqueue:
            await self.post("/v1/queue/enqueue", MESSAGE, MULTIPART)
        return {"acquire": acquire, "release": release, "enqueue": enqueue}


@asynccontextmanager
async def plane(folder: Path) -> AsyncIterator[Worker]:
    app = create_app(GatewaySettings.isolated(store=f"disk://{folder}/store"))
    with Tracer() as tracer:
        async with running(app, LOOPBACK) as server:
            yield Worker(url_of(server), tracer)


@pytest.fixture(scope="module")
async def crossed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mapping[str, set[str]]]:
    """What every cycle of several crosses: timers and sweeps of the background are in some of them only. However busy the
    machine is, the device counts as a quick one."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fsync_policy, "QUICK_S", math.inf)
        patched.setattr(fsync_policy, "STALL_S", math.inf)
        patched.setattr(journal, "QUICK_S", math.inf)
        yield await _crossed(tmp_path_factory)


async def _crossed(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, set[str]]:
    async with plane(tmp_path_factory.mktemp("walks")) as worker:
        for number in range(WARM_UP):
            await worker.cycle(f"warm-up-{number}")
        cycles = [await worker.cycle(f"key-{number}") for number in range(5)]
    return {name: set.intersection(*[cycle[name] for cycle in cycles]) for name in WALKS}


def listed(walk: str) -> set[str]:
    """The files that ARCHITECTURE.md names for a walk."""
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    found = re.search(rf"^Files of an? {walk}: (.+)$", text, re.MULTILINE)
    assert found is not None, f"ARCHITECTURE.md does not list the files of the {walk}"
    return set(re.findall(r"`([^`]+)`", found[1]))


@pytest.mark.parametrize("walk", WALKS)
async def test_a_request_crosses_few_files_and_the_page_names_them(
    crossed: Mapping[str, set[str]], walk: str
) -> None:
    assert crossed[walk] == listed(walk)
    assert len(crossed[walk]) <= WALKS[walk]
