"""Every conversation that was recorded from etcd's JSON gateway, held with a plane in each of its shapes, in their order."""

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any, Final, NamedTuple

import pytest

from tests.conftest import own_schema
from tests.wire.etcd.conftest import SHAPES, EtcdWire, Reply, Shape, Stream, one_plane
from tests.wire.etcd.recording import Comparison, Recording, recordings

RECORDED: Final = recordings()

OTHER_BASE64: Final = {"E32", "E33"}
"""Refused by the original and accepted here, which would put all revisions after them on: they have a test of their own."""

FOLLOWING: Final[dict[str, list[tuple[str, dict[str, Any]]]]] = {
    "E70": [
        ("/v3/kv/put", {"key": "dy8x", "value": "MQ=="}),
        ("/v3/kv/put", {"key": "dy8x", "value": "Mg=="}),
        (
            "/v3/kv/txn",
            {
                "success": [
                    {"request_put": {"key": "dy8y", "value": "dA=="}},
                    {"request_delete_range": {"key": "dy8x"}},
                ]
            },
        ),
    ]
}
"""What others change while a watch is on; each change is seen before the next one."""

SENT_OTHERWISE: Final = {
    # With the revision of the expiry, so that a machine which stalls between the put and the watch changes nothing.
    "E84": b'{"create_request":{"key":"eC8x","start_revision":"23"}}',
}

LINES: Final[dict[str, dict[str, str]]] = {
    "E48": {'"TTL":"2"': '"TTL":"1"'},  # The shortest lease is one second here.
    "E82": {'"TTL":"2"': '"TTL":"1"'},
    "E96": {'"TTL":"2"': '"TTL":"1"'},
    "E100": {'"revision": "194"': '"revision": "28"'},  # It was recorded at another time.
}
"""What stands otherwise in the answers of a plane."""

SILENT_S: Final = 0.05


class Heard(NamedTuple):
    """The answers of one shape. A text is why there was none."""

    replies: dict[str, Reply | str]
    comparison: Comparison
    is_listener: bool
    nodes: int

    def reply(self, name: str) -> Reply:
        reply = self.replies[name]
        assert isinstance(reply, Reply), reply
        return reply


@pytest.fixture(
    scope="module",
    params=[
        "memory",
        "listener",
        "disk",
        "nodes",
        "split",
        *(pytest.param(shape, marks=pytest.mark.long) for shape in ("asgi", "postgres")),
    ],
)
def heard(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Heard:
    shape: str = request.param
    if shape in ("postgres", "nodes", "split"):
        with own_schema(request.getfixturevalue("postgres_server")) as store:
            return asyncio.run(_listen(SHAPES[shape], store))
    store = f"disk://{tmp_path_factory.mktemp('etcd')}/store" if shape == "disk" else "mem://"
    return asyncio.run(_listen(SHAPES[shape], store))


async def _listen(shape: Shape, store: str) -> Heard:
    async with shape(store) as wire:
        replies = {name: await _hold(wire, recorded) for name, recorded in RECORDED.items() if _is_held(name)}
        return Heard(replies, Comparison(), wire.is_listener, len(wire.ports))


def _is_held(name: str) -> bool:
    return name not in OTHER_BASE64


async def _hold(wire: EtcdWire, recorded: Recording) -> Reply | str:
    """What went wrong is told by the test of this conversation; the others go on."""
    try:
        if recorded.status is None:
            return await _hold_silent(wire, recorded)
        if recorded.is_stream:
            return await _hold_stream(wire, recorded)
        return await _hold_call(wire, recorded)
    except (TimeoutError, OSError, EOFError, ValueError, KeyError, AssertionError) as error:
        return f"{type(error).__name__}: {error}"


async def _hold_call(wire: EtcdWire, recorded: Recording) -> Reply:
    while True:
        reply = await wire.call(recorded.method, recorded.path, recorded.body, recorded.headers)
        if recorded.name != "E83" or reply.status != 404:
            return reply
        # The machine stalled for longer than the lease of E82 lasts: that is granted again.
        await wire.post("/v3/lease/grant", TTL=1, ID=900)


async def _hold_silent(wire: EtcdWire, recorded: Recording) -> Reply:
    async with wire.stream(recorded.body, recorded.path) as stream:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(SILENT_S):
                await stream.head()
    return Reply(0, {}, b"")


async def _hold_stream(wire: EtcdWire, recorded: Recording) -> Reply:
    async with wire.stream(SENT_OTHERWISE.get(recorded.name, recorded.body), recorded.path) as stream:
        await stream.head()
        chunks = [await stream.chunk()]
        for path, members in FOLLOWING.get(recorded.name, []):
            await wire.post(path, **members)
            chunks.append(await stream.chunk())
        while _weight(chunks) < _weight([line.encode() for line in recorded.lines]):
            chunks.append(await stream.chunk())
        await _nothing_follows(stream)
        return Reply(stream.status, stream.headers, b"".join(chunks), stream.node)


def _weight(lines: list[bytes]) -> int:
    """How much was told: events count wherever they stand, as history may come in any number of messages."""
    results = [json.loads(line)["result"] for line in lines]
    return sum(len(result["events"]) if "events" in result else 1 for result in results)


async def _nothing_follows(stream: Stream) -> None:
    try:
        chunk = await stream.chunk(SILENT_S)
    except TimeoutError:
        return
    if chunk:
        raise ValueError(f"more than was recorded: {chunk!r}")


def test_all_recordings_are_there() -> None:
    assert list(RECORDED) == [f"E{number}" for number in range(1, 101)]


@pytest.mark.parametrize("name", [name for name in RECORDED if _is_held(name)])
def test_a_recorded_conversation_goes_the_same_way(heard: Heard, name: str) -> None:
    recorded, reply = RECORDED[name], heard.reply(name)
    if name in OTHERWISE:
        OTHERWISE[name](heard, reply)
        return
    assert reply.status == (recorded.status or 0), reply
    if recorded.status is None:
        return
    assert reply.headers["content-type"] == recorded.content_type
    replaced = LINES.get(name, {})
    expected = [json.loads(_replaced(line, replaced)) for line in recorded.lines]
    live = [json.loads(line) for line in reply.body.splitlines()]
    if name in OF_TIME:
        OF_TIME[name](heard, expected[0], live[0])
    if name in HISTORY:
        expected, live = _joined(expected), _joined(live)
    heard.comparison.check(expected, live, node=reply.node)


def _replaced(line: str, replaced: dict[str, str]) -> str:
    for before, now in replaced.items():
        assert before in line
        line = line.replace(before, now)
    return line


# -- what is a matter of time: made equal after a look


def _ttl_left(heard: Heard, expected: Any, live: Any) -> None:
    """It counts down while the test runs."""
    assert 0 < int(live["TTL"]) <= int(live["grantedTTL"])
    live["TTL"] = expected["TTL"]


def _leases_left(heard: Heard, expected: Any, live: Any) -> None:
    """The lease of one second may be over."""
    if len(live["leases"]) < len(expected["leases"]):
        del expected["leases"][0]


def _expiry_was_seen(heard: Heard, expected: Any, live: Any) -> None:
    """The lease of one second may be over before the watch is on."""
    header = live["result"]["header"]
    assert header["revision"] in ("22", "23")
    header["revision"] = expected["result"]["header"]["revision"]


OF_TIME: Final[dict[str, Callable[[Heard, Any, Any], None]]] = {
    **dict.fromkeys(("E51", "E52", "E60"), _ttl_left),
    **dict.fromkeys(("E55", "E56"), _leases_left),
    "E84": _expiry_was_seen,
}


# -- what may come in several messages

HISTORY: Final = {"E71"}


def _joined(lines: list[Any]) -> list[Any]:
    """The first message, and one with all events after it."""
    first, *others = [line["result"] for line in lines]
    events = [event for other in others for event in other["events"]]
    for other in others:
        revisions = [int(event["kv"]["mod_revision"]) for event in other["events"]]
        assert int(other["header"]["revision"]) >= max(revisions)
    return [first, {**others[-1], "events": events}]


# -- where the contract asks for something else than what was recorded


def _version(heard: Heard, reply: Reply) -> None:
    """Clients read the number of the API in it: three numbers, and at least 3.4 for the paths below `/v3`."""
    members = reply.members
    if heard.is_listener:
        assert reply.body == b'{"etcdserver":"3.5.17","etcdcluster":"3.5.0"}'
    for name in ("etcdserver", "etcdcluster"):
        assert re.fullmatch(r"3\.\d+\.\d+", members[name]), members
        assert int(members[name].split(".")[1]) >= 4
    assert reply.status == 200


def _health(heard: Heard, reply: Reply) -> None:
    """The value is a text."""
    assert reply.status == 200
    assert reply.members == {"health": "true"}


def _error(status: int, code: int) -> Callable[[Heard, Reply], None]:
    """Of these only the rank counts: the original tells words of Go's libraries."""

    def check(heard: Heard, reply: Reply) -> None:
        assert reply.status == status
        assert reply.headers["content-type"] == "application/json"
        members = reply.members
        assert list(members) == ["error", "message", "code"]
        assert members["error"] == members["message"] != ""
        assert members["code"] == code

    return check


def _old_prefix(heard: Heard, reply: Reply) -> None:
    """The original serves two of its three prefixes."""
    heard.comparison.check(RECORDED["E29"].messages[0], reply.members, node=reply.node)


def _status(heard: Heard, reply: Reply) -> None:
    """Sizes and the version are those of the plane."""
    (recorded,) = RECORDED["E66"].messages
    members = reply.members
    heard.comparison.check(recorded["header"], members["header"], node=reply.node)
    assert list(members) == list(recorded)
    assert re.fullmatch(r"\d+\.\d+\.\d+", members["version"])
    for name in ("dbSize", "leader", "raftIndex", "raftTerm", "raftAppliedIndex", "dbSizeInUse"):
        assert re.fullmatch(r"[1-9]\d*", members[name]), name
    assert members["raftTerm"] == members["header"]["raft_term"]
    if heard.nodes == 1:
        assert members["leader"] == members["header"]["member_id"]


def _members(heard: Heard, reply: Reply) -> None:
    """Names and URLs are those of the plane; each node is one, this one among them."""
    (recorded,) = RECORDED["E67"].messages
    answer = reply.members
    heard.comparison.check(recorded["header"], answer["header"], node=reply.node)
    assert list(answer) == ["header", "members"]
    assert answer["header"]["member_id"] in [member["ID"] for member in answer["members"]]
    for member in answer["members"]:
        assert list(member) == ["ID", "name", "peerURLs", "clientURLs"]
        assert re.fullmatch(r"[1-9]\d*", member["ID"])
        assert member["name"] != ""
        for url in (*member["peerURLs"], *member["clientURLs"]):
            assert re.fullmatch(r"https?://[^/]+", url), url


def _lock_key(heard: Heard, reply: Reply) -> None:
    """The key ends in the id of its lease, in hexadecimal digits."""
    (recorded,) = RECORDED["E86"].messages
    heard.comparison.check(recorded, reply.members, node=reply.node)
    (kv,) = reply.members["kvs"]
    assert base64.b64decode(kv["key"]) == b"lk/%x" % int(kv["lease"])


def _leader_key(heard: Heard, reply: Reply) -> None:
    (recorded,) = RECORDED["E87"].messages
    heard.comparison.check(recorded, reply.members, node=reply.node)
    leader = reply.members["leader"]
    assert base64.b64decode(leader["key"]) == b"el/%x" % int(leader["lease"])


def _hash(heard: Heard, reply: Reply) -> None:
    """Of what is stored, which is another thing here."""
    assert reply.status == 200
    (recorded,) = RECORDED["E88"].messages
    assert list(reply.members) == list(recorded)
    heard.comparison.check(recorded["header"], reply.members["header"], node=reply.node)
    assert 0 <= reply.members["hash"] < 1 << 32


OTHERWISE: Final[dict[str, Callable[[Heard, Reply], None]]] = {
    "E1": _version,
    "E2": _health,
    "E23": _error(400, 3),
    "E24": _error(400, 3),
    "E27": _error(404, 5),  # Plain text in the original; clients read one shape of errors here.
    "E28": _error(405, 12),
    "E30": _old_prefix,
    "E66": _status,
    "E67": _members,
    "E86": _lock_key,
    "E87": _leader_key,
    "E88": _hash,
    "E95": _error(500, 2),
}


# -- what the original refuses


@pytest.fixture(scope="module")
async def plane() -> AsyncIterator[EtcdWire]:
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(one_plane())


@pytest.mark.parametrize(("name", "value"), [("E32", "//4="), ("E33", "eA==")])
async def test_other_spellings_of_base64_are_taken_and_told_in_the_standard_one(
    plane: EtcdWire, name: str, value: str
) -> None:
    """Newer versions of the original take text that is URL-safe or not padded."""
    recorded = RECORDED[name]

    put = await plane.call(recorded.method, recorded.path, recorded.body)
    (kv,) = (await plane.post("/v3/kv/range", key="dWE="))["kvs"]

    assert put.status == 200, put
    assert (kv["key"], kv["value"]) == ("dWE=", value)
