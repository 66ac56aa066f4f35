"""All that etcd3gw can do, by an unmodified one: over the plane's own port and over the one that has etcd's API alone."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

import pytest
from anyio.from_thread import start_blocking_portal
from etcd3gw import Etcd3Client, Lease
from etcd3gw.exceptions import Etcd3Exception, PreconditionFailedError, WatchTimedOut
from etcd3gw.utils import _encode as encoded

from tests.infra.gateway import url_of
from tests.wire.etcd.conftest import ANSWER_S_MAX, etcd_server, listener_url_of

LARGEST = (1 << 63) - 1
"""Of the ids of leases; a float would lose its last digits."""


@pytest.fixture(scope="module", params=["main", "listener"])
def client(request: pytest.FixtureRequest) -> Iterator[Etcd3Client]:
    """The client blocks, so the server has a thread of its own."""
    server_of = etcd_server(etcd_listen="127.0.0.1:0")
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(server_of) as server:
        url = urlsplit(url_of(server) if request.param == "main" else listener_url_of(server))
        assert url.hostname is not None
        assert url.port is not None
        client = Etcd3Client(url.hostname, url.port, timeout=ANSWER_S_MAX)
        with client.session:
            yield client


def revision_of(client: Etcd3Client) -> int:
    return int(client.status()["header"]["revision"])


def keys_of(found: list[tuple[bytes, Any]]) -> list[bytes]:
    return [metadata["key"] for _, metadata in found]


def next_of(events: Iterator[Any]) -> dict[str, Any]:
    """Members that have their default value are not there."""
    event: dict[str, Any] = next(events)
    return event


def metadata_of(client: Etcd3Client, key: str) -> dict[str, Any]:
    """Of a key that is there."""
    found: list[Any] = client.get(key, metadata=True)
    ((_, metadata),) = found
    return dict(metadata)


def text_of(told: pytest.ExceptionInfo[Etcd3Exception]) -> str:
    assert told.value.detail_text is not None
    return told.value.detail_text


def test_it_finds_the_api_by_the_version(client: Etcd3Client) -> None:
    assert client.api_path == "/v3/"


def test_status_and_members_tell_of_this_node(client: Etcd3Client) -> None:
    status, (member,) = client.status(), client.members()

    assert status["leader"] == status["header"]["member_id"] == member["ID"]
    assert int(status["dbSize"]) >= 0
    assert int(status["raftTerm"]) >= 1
    assert member.get("name")


def test_what_is_put_is_got(client: Etcd3Client) -> None:
    assert client.put("got/a", "first") is True
    assert client.put("got/a", b"second \xff\x00") is True

    assert client.get("got/a") == [b"second \xff\x00"]
    metadata = metadata_of(client, "got/a")
    assert (metadata["key"], metadata["version"]) == (b"got/a", "2")
    assert client.get("got/nothing") == []


def test_the_empty_value_is_a_value(client: Etcd3Client) -> None:
    client.put("empty/a", "")

    assert client.get("empty/a") == [b""]


def test_create_writes_what_is_not_there(client: Etcd3Client) -> None:
    lease = client.lease(60)

    assert client.create("created/a", "first", lease) is True
    assert client.create("created/a", "second") is False
    assert client.get("created/a") == [b"first"]
    assert lease.keys() == [b"created/a"]


def test_replace_compares_the_value(client: Etcd3Client) -> None:
    client.put("replaced/a", "first")

    assert client.replace("replaced/a", "other", "second") is False
    assert client.replace("replaced/a", "first", "second") is True
    assert client.replace("replaced/nothing", "", "second") is False
    assert client.get("replaced/a") == [b"second"]


ORDERS: list[tuple[Any, Any, list[bytes]]] = [
    (None, None, [b"a", b"b", b"c"]),
    ("ascend", "key", [b"a", b"b", b"c"]),
    ("descend", "key", [b"c", b"b", b"a"]),
    ("ascend", "version", [b"a", b"c", b"b"]),
    ("descend", "version", [b"b", b"c", b"a"]),
    ("ascend", "create", [b"c", b"a", b"b"]),
    ("descend", "create", [b"b", b"a", b"c"]),
    ("ascend", "mod", [b"a", b"b", b"c"]),
    ("descend", "mod", [b"c", b"b", b"a"]),
    ("none", "mod", [b"a", b"b", b"c"]),
    ("ascend", "value", [b"b", b"c", b"a"]),
    ("descend", "value", [b"a", b"c", b"b"]),
]


@pytest.fixture(scope="module")
def ordered(client: Etcd3Client) -> Etcd3Client:
    """Three keys: by each target they stand in another order."""
    for key, value in (("c", "x"), ("a", "z"), ("b", "x"), ("b", "x"), ("b", "x"), ("c", "y")):
        client.put(f"ordered/{key}", value)
    return client


@pytest.mark.parametrize(("order", "target", "expected"), ORDERS)
def test_a_prefix_is_sorted_as_asked(
    ordered: Etcd3Client, order: Any, target: Any, expected: list[bytes]
) -> None:
    found = ordered.get_prefix("ordered/", sort_order=order, sort_target=target)

    assert keys_of(found) == [b"ordered/" + key for key in expected]


def test_a_range_is_cut_and_filtered_as_asked(ordered: Etcd3Client) -> None:
    whole: Any = {"metadata": True, "range_end": "ordered0"}
    mods = {kv["key"][-1:]: int(kv["mod_revision"]) for _, kv in ordered.get("ordered/", **whole)}
    creates = {kv["key"][-1:]: int(kv["create_revision"]) for _, kv in ordered.get("ordered/", **whole)}

    def found(**asked: Any) -> list[bytes]:
        return [key[-1:] for key in keys_of(ordered.get("ordered/", **whole, **asked))]

    assert found(limit=2) == [b"a", b"b"]
    assert found(limit=1, sort_order="descend", sort_target="mod") == [b"c"]
    assert found(min_mod_revision=mods[b"b"]) == [b"b", b"c"]
    assert found(max_mod_revision=mods[b"b"]) == [b"a", b"b"]
    assert found(min_create_revision=creates[b"a"]) == [b"a", b"b"]
    assert found(max_create_revision=creates[b"a"]) == [b"a", b"c"]
    assert found(revision=creates[b"a"]) == [b"a", b"c"]
    assert found(serializable=True) == [b"a", b"b", b"c"]
    assert found(count_only=True) == []
    assert ordered.get("ordered/", range_end="ordered0", keys_only=True) == [b"", b"", b""]


def test_get_all_has_every_key(client: Etcd3Client) -> None:
    client.put("\x01first", "1")
    client.put(b"\xff\xfflast", "2")

    keys = keys_of(client.get_all())

    assert (keys[0], keys[-1]) == (b"\x01first", b"\xff\xfflast")
    assert keys == sorted(keys)
    assert keys_of(client.get_all("descend", "key")) == keys[::-1]


def test_delete_tells_whether_there_was_something(client: Etcd3Client) -> None:
    client.put("deleted/a", "1")

    assert client.delete("deleted/a", prev_kv=True) is True
    assert client.delete("deleted/a") is False
    assert client.get("deleted/a") == []


def test_a_prefix_and_a_range_are_deleted(client: Etcd3Client) -> None:
    for key in ("cleared/a", "cleared/b", "cleared/c", "cleared0"):
        client.put(key, "1")

    assert client.delete("cleared/a", range_end="cleared/c") is True
    assert keys_of(client.get_prefix("cleared")) == [b"cleared/c", b"cleared0"]
    assert client.delete_prefix("cleared/") is True
    assert client.delete_prefix("cleared/") is False
    assert keys_of(client.get_prefix("cleared")) == [b"cleared0"]


def test_a_transaction_is_sent_without_a_content_type(client: Etcd3Client) -> None:
    client.put("txn/a", "1")
    swap: dict[str, Any] = {
        "compare": [{"key": encoded("txn/a"), "result": "EQUAL", "target": "VALUE", "value": encoded("1")}],
        "success": [
            {"request_put": {"key": encoded("txn/b"), "value": encoded("2")}},
            {"request_delete_range": {"key": encoded("txn/a")}},
        ],
        "failure": [{"request_range": {"key": encoded("txn/b")}}],
    }

    done, refused = [dict[str, Any](client.transaction(swap)) for _ in range(2)]

    assert done["succeeded"] is True
    assert [list(one) for one in done["responses"]] == [["response_put"], ["response_delete_range"]]
    assert "succeeded" not in refused
    (told,) = refused["responses"]
    assert told["response_range"]["kvs"][0]["value"] == encoded("2")


def test_a_lease_takes_its_keys_along(client: Etcd3Client) -> None:
    lease = client.lease(60)
    client.put("leased/a", "1", lease)
    client.put("leased/b", "2", lease)

    assert 0 < lease.ttl() <= 60
    assert lease.refresh() == 60
    assert sorted(lease.keys()) == [b"leased/a", b"leased/b"]
    assert lease.revoke() is True
    assert client.get_prefix("leased/") == []
    assert (lease.ttl(), lease.refresh(), lease.keys()) == (-1, -1, [])


def test_a_lease_that_ends_takes_its_keys_along(client: Etcd3Client) -> None:
    lease = client.lease(1)
    client.put("ended/a", "1", lease)

    event = client.watch_once("ended/a", ANSWER_S_MAX, start_revision=revision_of(client), filters=["NOPUT"])

    assert event.get("type") == "DELETE"
    assert client.get("ended/a") == []
    assert lease.refresh() == -1


def test_ids_of_leases_keep_all_their_digits(client: Etcd3Client) -> None:
    client.post(client.get_url("/lease/grant"), json={"TTL": 60, "ID": LARGEST})
    lease = Lease(LARGEST, client)
    client.put("digits/a", "1", lease)

    assert metadata_of(client, "digits/a")["lease"] == str(LARGEST)
    assert lease.keys() == [b"digits/a"]
    lease.revoke()


def test_refusals_are_told_in_its_own_terms(client: Etcd3Client) -> None:
    client.post(client.get_url("/lease/grant"), json={"TTL": 60, "ID": 4712})

    with pytest.raises(PreconditionFailedError) as taken:
        client.post(client.get_url("/lease/grant"), json={"TTL": 60, "ID": 4712})
    with pytest.raises(Etcd3Exception) as unknown:
        client.put("refused/a", "1", Lease(4713, client))
    with pytest.raises(Etcd3Exception) as future:
        client.get("refused/a", revision=LARGEST)

    assert "etcdserver: lease already exists" in text_of(taken)
    assert "etcdserver: requested lease not found" in text_of(unknown)
    assert "etcdserver: mvcc: required revision is a future revision" in text_of(future)


def test_a_watch_hears_of_one_key(client: Etcd3Client) -> None:
    events, cancel = client.watch("watched/a", prev_kv=True)
    client.put("watched/a", "1")
    client.put("watched/b", "1")
    client.put("watched/a", "2")
    client.delete("watched/a")

    created, changed, deleted = [next_of(events) for _ in range(3)]

    cancel()
    assert list(events) == []
    assert (created["kv"]["key"], created["kv"]["value"]) == (b"watched/a", b"1")
    assert "type" not in created
    assert "prev_kv" not in created
    assert changed["prev_kv"]["value"] == encoded("1")
    assert (deleted["type"], "value" in deleted["kv"]) == ("DELETE", False)


def test_a_watch_of_a_prefix_tells_of_the_past_and_goes_on(client: Etcd3Client) -> None:
    client.put("history/a", "1")
    start = revision_of(client)
    client.delete("history/a")
    events, cancel = client.watch_prefix("history/", start_revision=start, progress_notify=True)
    client.put("history/b", "2")

    told = [(event.get("type", "PUT"), event["kv"]["key"]) for event in islice(events, 3)]

    cancel()
    assert told == [("PUT", b"history/a"), ("DELETE", b"history/a"), ("PUT", b"history/b")]


def test_watches_of_one_client_do_not_disturb_each_other(client: Etcd3Client) -> None:
    watches = [client.watch_prefix(f"side/{number}/") for number in range(8)]
    for number in range(8):
        client.put(f"side/{number}/a", str(number))

    told = [next_of(events)["kv"]["value"] for events, _ in watches]

    for _, cancel in watches:
        cancel()
    assert told == [b"%d" % number for number in range(8)]


@pytest.mark.parametrize(("watch", "key"), [("watch_once", "once/a"), ("watch_prefix_once", "/once/")])
def test_one_event_ends_the_watch(client: Etcd3Client, watch: str, key: str) -> None:
    """Of a prefix this client encodes the end twice: one that begins with a slash is in the range that it then watches."""
    once: Callable[..., Any] = getattr(client, watch)
    put = key if watch == "watch_once" else key + "a"
    with ThreadPoolExecutor(1) as executor:
        waiting = executor.submit(once, key, ANSWER_S_MAX)
        while not waiting.done():
            client.put(put, "1")

    assert waiting.result()["kv"]["key"] == put.encode()


def test_a_watch_without_an_event_times_out(client: Etcd3Client) -> None:
    with pytest.raises(WatchTimedOut):
        client.watch_once("silent/a", 0.05)


def test_a_lock_has_one_holder(client: Etcd3Client) -> None:
    held, other = client.lock("one", ttl=60), client.lock("one", ttl=60)

    assert held.acquire() is True
    assert other.acquire() is False
    assert (held.is_acquired(), other.is_acquired()) == (True, False)
    assert held.refresh() == 60
    assert other.release() is False
    assert held.release() is True
    assert held.release() is False
    assert other.acquire() is True
    assert client.get("/locks/one") == [other.uuid.encode()]


def test_a_lock_is_free_when_its_lease_is(client: Etcd3Client) -> None:
    with client.lock("leased", ttl=60) as lock:
        assert lock.is_acquired() is True
        assert lock.lease is not None
        lock.lease.revoke()

        assert lock.is_acquired() is False
        assert lock.refresh() == -1
