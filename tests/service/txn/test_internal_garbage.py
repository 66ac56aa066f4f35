"""Internal calls about transactions with a right signature and a wrong body: refused with a code, never a failure."""

import json
from collections.abc import AsyncIterator
from typing import Any, cast

import httpx
import pytest

from holdfast.common.ids import new_xid
from holdfast.common.role import Role
from holdfast.common.security.internal_identity import Signer, internal_keys
from holdfast.common.serving.server import ServeOptions, running
from holdfast.txn.app import create_app
from holdfast.txn.cluster.remote_lead import DECIDE_PATH, ENLIST_PATH
from holdfast.txn.layer.port import MEMBERS_MAX
from holdfast.txn.settings import TxnSettings
from tests.infra.gateway import LOOPBACK, SECRET, url_of

SETTINGS = TxnSettings.isolated(store="mem://", internal_secret=SECRET)
SIGNER = Signer(internal_keys(SETTINGS)[0], Role.LEASES)
ANSWER_WITHIN_S = 10
TXN_ID = new_xid()
MEMBER = {"namespace": "default", "key": "a"}
NO_TEXTS: list[Any] = [None, 7, 1.5, True, [], {}, ["x"]]
NO_IDS = ["", " ", "x", TXN_ID.upper(), TXN_ID + "x", TXN_ID + "\0", "\ud800", "x" * 100_000, "../" * 10]
NO_NAMES = ["", " ", "/", "a//b", "../a", "A B", "a\0b", "\ud800", "ü", "\x7f", "a" * 100_000]


@pytest.fixture(params=[True, False], ids=["express", "asgi"])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[httpx.AsyncClient]:
    options = ServeOptions(is_express=request.param, drain_grace_s=0)
    async with (
        running(create_app(SETTINGS), LOOPBACK, options=options) as server,
        httpx.AsyncClient(base_url=url_of(server), timeout=ANSWER_WITHIN_S) as client,
    ):
        yield client


async def post(client: httpx.AsyncClient, path: str, body: bytes, signer: Signer = SIGNER) -> httpx.Response:
    headers = {
        "X-Holdfast-Internal": signer.sign("POST", path, body).decode(),
        "Content-Type": "application/json",
    }
    return await client.post(path, content=body, headers=headers)


async def refused(client: httpx.AsyncClient, path: str, bodies: list[bytes]) -> None:
    """Each of them, and the server goes on."""
    answers = [await post(client, path, body) for body in bodies]

    shown = [
        (body[:100], answer.status_code, answer.text[:200])
        for body, answer in zip(bodies, answers, strict=True)
    ]
    assert [one for one in shown if not 400 <= one[1] < 500] == []
    assert [answer.json() for answer in answers if not answer.json().get("error")] == []


def text_of(members: Any) -> bytes:
    return json.dumps(members).encode()


def decide(**changed: Any) -> bytes:
    return text_of({"txn_id": TXN_ID, "state": "commit", **changed})


def enlist(**changed: Any) -> bytes:
    """Of a transaction of its own: one that an earlier call ended would be refused for that."""
    return text_of({"txn_id": new_xid(), "expires_at_ms": 1, "members": [MEMBER], **changed})


async def test_a_decision_that_is_well_formed_is_answered(client: httpx.AsyncClient) -> None:
    """The other tests would be of no use if the signature, the path or the example were wrong."""
    assert (await post(client, DECIDE_PATH, decide())).json() == {"state": "commit"}
    assert (await post(client, ENLIST_PATH, enlist())).json() == {"expires_at_ms": 1}


@pytest.mark.parametrize("path", [DECIDE_PATH, ENLIST_PATH])
async def test_what_is_no_object_of_json_is_refused(client: httpx.AsyncClient, path: str) -> None:
    whole = decide() if path == DECIDE_PATH else enlist(txn_id=TXN_ID)

    await refused(
        client,
        path,
        [
            b"",
            b"null",
            b"7",
            b'"text"',
            b"[]",
            b"{}",
            b"{" * 50_000,
            b'{"txn_id":' * 50_000,
            b"[" * 100_000 + b"]" * 100_000,
            b'{"txn_id":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
            b"\xff\xfe\x00",
            whole.replace(TXN_ID.encode(), b"\xff" * 20),
            whole[:-1],
            whole + b"x",
            b"\xef\xbb\xbf" + whole[:-1],
            whole.decode().encode("utf-16"),
            b"NaN",
            b'{"txn_id":NaN}',
            b" " * 200_000,
        ],
    )


@pytest.mark.parametrize("path", [DECIDE_PATH, ENLIST_PATH])
async def test_a_transaction_that_is_none_is_refused(client: httpx.AsyncClient, path: str) -> None:
    body = decide if path == DECIDE_PATH else enlist

    await refused(client, path, [body(txn_id=wrong) for wrong in [*NO_TEXTS, *NO_IDS]])


async def test_a_decision_that_is_none_is_refused(client: httpx.AsyncClient) -> None:
    wrong: list[Any] = [*NO_TEXTS, "", "pending", "COMMIT", "commit ", "x" * 100_000]

    await refused(client, DECIDE_PATH, [*[decide(state=one) for one in wrong], decide(more=1)])


async def test_an_end_that_is_no_time_is_refused(client: httpx.AsyncClient) -> None:
    wrong: list[Any] = [
        None,
        "1",
        1.5,
        True,
        [],
        {},
        -1,
        -(1 << 63),
        (1 << 63) - 1,
        1 << 63,
        1 << 64,
        10**400,
    ]

    await refused(client, ENLIST_PATH, [enlist(expires_at_ms=one) for one in wrong])


async def test_members_that_are_none_are_refused(client: httpx.AsyncClient) -> None:
    lists: list[Any] = [
        None,
        7,
        "x",
        {},
        [None],
        [7],
        ["x"],
        [[]],
        [{}],
        [{"key": "a"}],
        [{"namespace": "a"}],
    ]
    named = [[{**MEMBER, part: wrong}] for part in ("namespace", "key") for wrong in [*NO_TEXTS, *NO_NAMES]]

    await refused(client, ENLIST_PATH, [enlist(members=one) for one in [*lists, *named]])
    await refused(client, ENLIST_PATH, [enlist(members=[{**MEMBER, "more": 1}]), enlist(more=1)])


async def test_more_members_than_a_transaction_has_are_refused(client: httpx.AsyncClient) -> None:
    many = [{"namespace": "default", "key": f"k{number}"} for number in range(MEMBERS_MAX + 1)]

    await refused(client, ENLIST_PATH, [enlist(members=many), enlist(members=[MEMBER] * 20_000)])


async def test_the_same_member_twice_is_one(client: httpx.AsyncClient) -> None:
    txn_id = new_xid()

    answer = await post(
        client, ENLIST_PATH, enlist(txn_id=txn_id, expires_at_ms=1 << 42, members=[MEMBER] * 3)
    )
    listed = (await client.get("/v1/txn/list")).json()["transactions"]

    assert answer.status_code == 200
    (participants,) = [one["participants"] for one in listed if one["txn_id"] == txn_id]
    assert [(one["namespace"], one["key"]) for one in participants] == [("default", "a")]


async def test_a_member_named_twice_in_one_object_is_read_as_its_last_value_or_refused(
    client: httpx.AsyncClient,
) -> None:
    body = decide()[:-1] + b',"state":"neither"}'

    await refused(client, DECIDE_PATH, [body])


async def test_another_signature_is_refused(client: httpx.AsyncClient) -> None:
    stranger = Signer(b"x" * 32, Role.LEASES)
    answers = [
        await post(client, DECIDE_PATH, decide(), stranger),
        await client.post(DECIDE_PATH, content=decide()),
        await client.post(DECIDE_PATH, content=decide(), headers={"X-Holdfast-Internal": "v1.x.1.x..x"}),
    ]

    assert [(one.status_code, one.json()["error"]) for one in answers] == [(403, "internal_forbidden")] * 3


async def test_a_role_that_does_not_exist_is_refused(client: httpx.AsyncClient) -> None:
    stranger = Signer(internal_keys(SETTINGS)[0], cast(Role, "stranger"))

    answer = await post(client, DECIDE_PATH, decide(), stranger)

    assert (answer.status_code, answer.json()["error"]) == (403, "internal_forbidden")
