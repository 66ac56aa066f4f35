"""What somebody who comes from etcd finds as it was, and what is another."""

import base64

import httpx
import pytest

from holdfast.client import Client, Forbidden
from holdfast.client.testing import TestServer


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize("below", ["/v3", "/v3beta", "/v3alpha"])
def test_the_api_is_below_each_of_its_prefixes(server: TestServer, prefix: str, below: str) -> None:
    url = server.url + below
    form = {"Content-Type": "application/x-www-form-urlencoded"}  # As curl sends it.
    members = {"key": b64(prefix), "value": b64("open")}

    put = httpx.post(f"{url}/kv/put", json=members, headers=form).json()
    got = httpx.post(f"{url}/kv/range", json={"key": b64(prefix)}, headers=form).json()

    revision = put["header"]["revision"]
    assert isinstance(revision, str)
    assert got["kvs"] == [
        {**members, "create_revision": revision, "mod_revision": revision, "version": "1"},
    ]
    assert "more" not in got


@pytest.mark.parametrize(("wanted_s", "granted_s"), [(1, 1), (0, 1), (-5, 1), (30, 30)])
def test_no_lease_is_shorter_than_a_second(client: Client, wanted_s: int, granted_s: int) -> None:
    lease = client.kv.leases.grant(wanted_s)

    assert lease.ttl_s == granted_s


def test_there_are_no_users(server: TestServer) -> None:
    answer = httpx.post(f"{server.url}/v3/auth/authenticate", json={"name": "root", "password": "x"})

    assert answer.status_code == 412
    assert answer.json()["error"] == "etcdserver: authentication is not enabled"


@pytest.mark.parametrize("root", ["/queue", "/q"])
def test_keys_of_queues_are_not_all_to_be_written(client: Client, root: str) -> None:
    with pytest.raises(Forbidden, match="permission denied"):
        client.kv.put(f"{root}/orders/00000000000000000001/message", "x")


def test_documents_locks_and_messages_are_not_among_the_keys(client: Client) -> None:
    before = client.kv.get("", prefix=True, count_only=True).count

    with client.acquire("not-a-key") as session:
        session.save({"n": 1})
    client.queue("not-a-key").enqueue(b"x")
    with client.lock("not-a-key"):
        after = client.kv.get("", prefix=True, count_only=True).count

    assert after == before
