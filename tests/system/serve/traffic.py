"""A little of everything that a plane is asked for, so that every metric and route is touched."""

import contextlib

import httpx

from holdfast.client import Client, ClientError
from tests.system.cli import TIMEOUT_S


def send_some_of_everything(url: str) -> None:
    """Leases, documents, attachments, queries, messages, transactions; some of them refused."""
    with Client(url) as client:
        with client.acquire("orders/1", ttl_s=30) as session:
            session.save({"status": "open", "items": 3})
            session.attachments.put("a.txt", b"hello", content_type="text/plain")
            session.keepalive()
        assert list(client.query('/status="open"')) == ["orders/1"]
        files = client.attachments("orders/1")
        with files.get("a.txt") as stream:
            assert stream.read(100) == b"hello"
        assert len(files.list()) == 1
        with client.acquire("orders/1", ttl_s=30) as session, contextlib.suppress(ClientError):
            session.attachments.delete(name="a.txt")
            client.acquire("orders/1", ttl_s=30, block_s=0)
        queue = client.queue("jobs")
        for payload in (b"one", b"two"):
            queue.enqueue(payload)
        with queue.dequeue(block_s=10) as delivery:
            delivery.extend(30)
        with contextlib.suppress(KeyError), queue.dequeue(block_s=10):
            raise KeyError("so that it is nacked")
        queue.stats()
    for path in ("/nowhere", "/v1/queue/dequeue", "/v1/txn/replay", "/v1/acquire"):
        assert httpx.post(url + path, json={"what": "this"}, timeout=TIMEOUT_S).status_code >= 400
    for path in ("/version", "/openapi.json", "/v1/tc/leader"):
        httpx.get(url + path, timeout=TIMEOUT_S)
