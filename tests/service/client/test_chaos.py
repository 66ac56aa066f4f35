"""The chaos proxy: the same faults for the same seed, and a client that copes with it."""

from collections.abc import Callable

import pytest

from holdfast.client import Client, TransportFailed
from holdfast.client.testing import Chaos, ChaosProxy
from holdfast.client.testing.chaos import ChunkFaults
from tests.infra.fake_plane import FakePlane, Key


def test_the_same_seed_has_the_same_fates() -> None:
    chaos = Chaos(seed=5, delay_min_s=0.1, delay_max_s=0.9, drop_probability=0.3, reset_probability=0.1)

    def faults(chaos: Chaos, connection: int, direction: str) -> list[object]:
        source = ChunkFaults(chaos, connection, direction)
        return [source.next(100) for _ in range(50)]

    first = faults(chaos, 1, "up")

    assert first == faults(chaos, 1, "up")
    assert first != faults(chaos, 1, "down")
    assert first != faults(chaos, 2, "up")
    assert first != faults(Chaos(seed=6, delay_max_s=0.9), 1, "up")


def test_bandwidth_delays_by_size() -> None:
    faults = ChunkFaults(Chaos(bandwidth_bytes_per_s=1000), 1, "up")

    assert faults.next(500).delay_s == 0.5


def test_without_chaos_everything_passes(plane: FakePlane, url: str) -> None:
    with ChaosProxy(url, Chaos()) as proxy, Client(proxy.url) as client, client.acquire("orders") as session:
        session.save({"n": 1})
        session.attachments.put("big", b"x" * 300_000)
        content = session.attachments.read("big")

    assert len(content) == 300_000
    assert plane.keys["orders"].document == b'{"n":1}'


def test_the_bytes_of_a_server_that_hangs_up_all_arrive(url: str, plane: FakePlane) -> None:
    plane.keys["big"] = Key(document=b"y" * 500_000)

    with ChaosProxy(url, Chaos(delay_max_s=0.001, seed=3)) as proxy, Client(proxy.url) as client:
        state = client.get("big")

    assert state is not None
    assert len(state.content) == 500_000


def test_a_reset_is_a_transport_failure(url: str) -> None:
    with ChaosProxy(url, Chaos(reset_probability=1.0)) as proxy, Client(proxy.url) as client:
        with pytest.raises(TransportFailed):
            client.get("orders")


def test_a_target_that_is_gone_is_a_transport_failure() -> None:
    with ChaosProxy("http://127.0.0.1:1", Chaos()) as proxy, Client(proxy.url) as client:
        with pytest.raises(TransportFailed):
            client.get("orders")


def test_one_forced_disconnect_is_survived(url: str) -> None:
    chaos = Chaos(disconnect_after_s=0.05, disconnects_max=1)

    with ChaosProxy(url, chaos) as proxy, Client(proxy.url) as client:
        client.get("orders")
        _until(lambda: proxy.disconnects == 1, client)
        states = [client.get("orders") for _ in range(3)]

    assert states == [None, None, None]
    assert (proxy.disconnects, proxy.connections) == (1, 2)


def _until(is_done: Callable[[], bool], client: Client) -> None:
    while not is_done():
        client.describe("orders")
