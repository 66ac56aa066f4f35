"""What the errors of the network mean to who asked."""

import socket

import pytest

from holdfast.client import AsyncClient, Client, TransportFailed


@pytest.fixture
def deserted() -> str:
    """The URL of a port without a listener."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


def test_a_server_that_does_not_run_is_named_and_asked_about(deserted: str) -> None:
    with Client(deserted) as client, pytest.raises(TransportFailed) as failed:
        client.queue("jobs").stats()

    assert str(failed.value) == f"{deserted}: connection refused; is a server running there?"


async def test_the_asynchronous_twin_says_the_same(deserted: str) -> None:
    async with AsyncClient(deserted) as client:
        with pytest.raises(TransportFailed) as failed:
            await client.queue("jobs").stats()

    assert str(failed.value) == f"{deserted}: connection refused; is a server running there?"
