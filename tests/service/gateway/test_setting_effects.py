"""Settings as clients of a plane see them."""

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast.common.logging import configure_logging
from holdfast.common.serving.app import parts_of
from holdfast.common.serving.server import ServeOptions, running
from holdfast.common.telemetry.metrics import Registry
from holdfast.gateway.admission import backpressure as backpressure_module
from holdfast.gateway.admission.backpressure import Backpressure
from holdfast.gateway.admission.load_sample import HostProbe
from holdfast.gateway.app import create_app
from holdfast.gateway.settings import GatewaySettings
from tests.infra.gateway import LOOPBACK, url_of
from tests.wire.lockd.conftest import Wire
from tests.wire.lockd.queue_wire import dequeue, enqueue
from tests.wire.lockd.test_leases import refusal
from tests.wire.lockd.test_queue_plane import plane

WAIT_S = 60.0
ONE = ("one", "mem://")


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    configure_logging("debug", stream=stream)
    yield stream
    configure_logging()


async def test_what_names_no_namespace_is_in_the_default_one() -> None:
    async with plane(*ONE, namespace_default="shop") as wire:
        lease = await wire.acquire("orders")
        await wire.update(lease, b"{}")
        await wire.attach(lease, "a", b"x")
        await wire.release(lease)
        sent = await enqueue(wire, "jobs")
        named = await wire.post("/v1/get", key="orders", public=1, namespace="shop")
        in_default = await wire.post("/v1/get", key="orders", public=1, namespace="default")
        files = (await wire.list_attachments("orders")).json()
        queried = (await wire.post("/v1/query", {})).json()
        configured = (await wire.get("/v1/namespace")).json()
        decided = (await wire.get("/v1/describe", key="orders")).json()

    assert (named.status_code, in_default.status_code) == (200, 204)
    assert (sent["namespace"], files["namespace"], queried["namespace"]) == ("shop", "shop", "shop")
    assert (configured["namespace"], decided["namespace"]) == ("shop", "shop")


@pytest.mark.parametrize(("size", "hits"), [("64MiB", 1), ("0", 0)])
async def test_published_documents_are_read_from_memory_if_it_may_take_some(size: str, hits: int) -> None:
    async with plane(*ONE, state_cache_bytes=size) as wire:
        lease = await wire.acquire("orders")
        await wire.update(lease, b"1")
        await wire.release(lease)
        read = [await wire.read("orders") for _ in range(3)]
        shown = await wire.metrics()
        lease = await wire.acquire("orders")
        await wire.update(lease, b"2")
        await wire.release(lease)
        again = await wire.read("orders")

    assert {answer.content for answer in read} == {b"1"}
    assert len({str(dict(answer.headers, **{"x-correlation-id": "", "date": ""})) for answer in read}) == 1
    assert f"holdfast_state_cache_hits_total {hits}\n" in shown
    assert ("holdfast_state_cache_bytes 0\n" in shown) is (hits == 0)
    assert again.content == b"2"


async def test_a_lease_lasts_as_the_settings_say() -> None:
    async with plane(*ONE, ttl_s_default="400s", ttl_s_max="900s") as wire:
        left_s = []
        for key, asked in (("plain", 0), ("long", 99_999)):
            await wire.acquire(key, ttl_seconds=asked)
            waiting = await wire.post("/v1/acquire", {"key": key, "owner": "v", "block_seconds": -1})
            left_s.append(waiting.json()["retry_after_seconds"])

    # Seconds pass between two requests on a busy machine; what was granted differs by more.
    assert 300 < left_s[0] <= 401
    assert 800 < left_s[1] <= 901


@pytest.mark.parametrize("block", ["100ms", "-1s"])
async def test_a_negative_wait_is_that_of_the_settings(block: str) -> None:
    async with plane(*ONE, acquire_block_s=block) as wire:
        await wire.acquire("orders")

        # Without the setting this would wait for a minute, longer than the client of these tests does.
        answer = await wire.post("/v1/acquire", {"key": "orders", "owner": "v", "block_seconds": -2})

    assert refusal(answer) == (409, "waiting")


async def test_a_negative_wait_ends_with_the_lease() -> None:
    async with plane(*ONE, acquire_block_s="1h") as wire:
        lease = await wire.acquire("orders")
        asked = {"key": "orders", "owner": "v", "ttl_seconds": 5, "block_seconds": -2}
        waiting = asyncio.create_task(wire.post("/v1/acquire", asked))
        await until_metric(wire, "holdfast_lease_waiters", 1)
        await wire.release(lease)

        assert (await waiting).status_code == 200


@pytest.mark.parametrize(("is_unready", "status"), [(True, 503), (False, 200)])
async def test_readiness_while_draining_is_as_the_setting_says(is_unready: bool, status: int) -> None:
    app = create_app(GatewaySettings.isolated(store="mem://", readyz_drain=is_unready))
    async with (
        running(app, LOOPBACK, options=ServeOptions(drain_grace_s=0)) as server,
        httpx.AsyncClient(base_url=url_of(server), timeout=20) as client,
    ):
        before = await client.get("/readyz")
        parts_of(app).drain.begin(5)
        during = await client.get("/readyz")

    assert (before.status_code, during.status_code) == (200, status)


@pytest.mark.parametrize("name", ["txn_replay_interval_s", "sweeper_interval_s"])
async def test_transactions_are_swept_as_often_as_the_shorter_setting_says(name: str) -> None:
    async with plane(*ONE, **{name: "20ms"}) as wire:
        # By the defaults this would take minutes.
        await until_metric(wire, "holdfast_txn_sweep_duration_seconds_count", 60)


async def test_a_decision_is_remembered_for_its_retention() -> None:
    async with plane(*ONE, tc_decision_retention_s="1s", txn_replay_interval_s="50ms") as wire:
        lease = await wire.acquire("a")
        await wire.acquire("b", txn_id=lease.txn_id)
        await wire.release(lease)
        remembered = await wire.post("/v1/txn/replay", {"txn_id": lease.txn_id})

        async def is_forgotten() -> bool:
            return (await wire.post("/v1/txn/replay", {"txn_id": lease.txn_id})).status_code == 404

        await until(is_forgotten)

    assert remembered.json()["state"] == "commit"


@pytest.mark.parametrize("kind", ["mem", "disk", "postgres"])
async def test_a_commit_wakes_a_consumer_whatever_the_settings_of_the_poll_say(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    stores = {"mem": "mem://", "disk": f"disk://{tmp_path}/store"}
    store = stores.get(kind) or str(request.getfixturevalue("postgres_url"))
    never: dict[str, Any] = {
        "queue_poll_interval_s": "1h",
        "queue_poll_jitter_s": "1h",
        "queue_resilient_poll_interval_s": "1h",
        "disk_queue_watch": False,
        "mem_queue_watch_disabled": True,
    }
    async with plane("one", store, **never) as wire:
        waiting = asyncio.create_task(dequeue(wire, "jobs", wait_seconds=0))
        await until_waiting(wire, "jobs")
        sent = await enqueue(wire, "jobs", b"work")

        assert (await waiting).message["message_id"] == sent["message_id"]


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not await condition():  # noqa: ASYNC110 - a plane tells no client when it is done
            await asyncio.sleep(0.02)


async def until_waiting(wire: Wire, queue: str) -> None:
    async def is_waiting() -> bool:
        return bool((await wire.post("/v1/queue/stats", {"queue": queue})).json()["waiting_consumers"])

    await until(is_waiting)


async def until_metric(wire: Wire, name: str, least: float) -> None:
    async def is_reached() -> bool:
        return any(value >= least for value in values(await wire.metrics(), name))

    await until(is_reached)


def values(metrics: str, name: str) -> list[float]:
    lines = [line for line in metrics.splitlines() if line.partition(" ")[0].partition("{")[0] == name]
    return [float(line.rpartition(" ")[2]) for line in lines]


# The sampler of the load.


@asynccontextmanager
async def sampling(**settings: Any) -> AsyncIterator[Backpressure]:
    backpressure = Backpressure(GatewaySettings.isolated(**settings), Registry())
    async with backpressure.sampling():
        yield backpressure


async def test_the_load_is_looked_at_as_often_as_the_setting_says() -> None:
    limits: dict[str, Any] = {"qrf_memory_hard_limit_bytes": 1, "qrf_memory_soft_limit_bytes": 1}
    async with sampling(lsf_sample_interval_s="1h", **limits) as never:
        async with sampling(lsf_sample_interval_s="10ms", **limits) as often:

            async def is_engaged() -> bool:
                return often.admission.controller.state == "engaged"

            await until(is_engaged)

        assert never.admission.controller.state == "disengaged"


@pytest.mark.parametrize(("interval", "is_logged"), [("10ms", True), ("0s", False)])
async def test_the_load_is_logged_as_often_as_the_setting_says(
    interval: str, is_logged: bool, log: io.StringIO
) -> None:
    async with sampling(lsf_sample_interval_s="10ms", lsf_log_interval_s=interval) as backpressure:
        samples: list[object] = []

        async def are_ten_taken() -> bool:
            sample = backpressure.admission.controller.sample
            if not any(sample is known for known in samples):
                samples.append(sample)  # Kept, so that no later one is taken for it.
            return len(samples) >= 10

        await until(are_ten_taken)

    assert ("holdfast.lsf.sample" in log.getvalue()) is is_logged


async def test_the_headroom_of_the_settings_is_taken_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 1000 kB\nMemFree: 100 kB\n")
    monkeypatch.setattr(backpressure_module, "HostProbe", partial(HostProbe, proc=str(tmp_path)))
    settings: dict[str, Any] = {
        "qrf_memory_strict_headroom_percent": 40,
        "lsf_sample_interval_s": "10ms",
    }

    async with sampling(**settings) as backpressure:

        async def is_seen() -> bool:
            return backpressure.admission.controller.sample.host.memory_percent == 50.0

        await until(is_seen)
