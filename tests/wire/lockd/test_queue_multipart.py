"""Enqueue on the wire: parts in any order and of any form are taken, and what is broken leaves nothing behind."""

import json

import httpx
import pytest

from holdfast.queue.protocol.lockd.fields import META_BYTES_MAX
from tests.wire.lockd.conftest import Wire
from tests.wire.lockd.queue_wire import BOUNDARY, MULTIPART, closed, dequeue, message_body, part, take
from tests.wire.lockd.test_leases import refusal

META = part("meta", b'{"queue":"orders"}\n', "application/json")
PAYLOAD = part("payload", b"hello")
LARGE = b"0123456789abcdef" * 20_000


async def post(
    wire: Wire, body: bytes, content_type: str = MULTIPART["Content-Type"], **query: str
) -> httpx.Response:
    return await wire.post("/v1/queue/enqueue", body, {"Content-Type": content_type}, **query)


FORMS = {
    "as clients send it": (closed(META, PAYLOAD), b"hello"),
    "payload first": (closed(PAYLOAD, META), b"hello"),
    "no payload": (closed(META), b""),
    "empty payload": (closed(META, part("payload", b"")), b""),
    "other name": (closed(META, part("file", b"hello")), b"hello"),
    "other name first": (closed(part("file", b"hello"), META), b"hello"),
    "two payloads": (closed(META, PAYLOAD, part("payload", b"second")), b"hello"),
    "text around": (b"preamble\r\n" + closed(META, PAYLOAD) + b"epilogue", b"hello"),
    "line feeds": (closed(META, PAYLOAD).replace(b"\r\n", b"\n"), b"hello"),
    "spelling": (closed(META, PAYLOAD).replace(b"Content-D", b"cONTENT-d"), b"hello"),
    "no last line end": (closed(META, PAYLOAD)[:-2], b"hello"),
    "large": (closed(META, part("payload", LARGE)), LARGE),
    "large first": (closed(part("payload", LARGE), META), LARGE),
}


@pytest.mark.parametrize("kind", ["multipart/related", "multipart/form-data", "multipart/mixed"])
async def test_a_message_is_taken_in_whatever_form(wire: Wire, kind: str) -> None:
    for name, (body, payload) in FORMS.items():
        answer = await post(wire, body, f'{kind}; boundary="{BOUNDARY}"')
        taken = await dequeue(wire, "orders")

        assert answer.status_code == 200, f"{name}: {answer.text}"
        assert answer.json()["payload_bytes"] == len(payload), name
        assert taken.payload == payload, name
        assert taken.message["payload_content_type"] == "application/octet-stream"


async def test_the_query_may_name_the_queue(wire: Wire) -> None:
    answers = [
        await post(wire, closed(PAYLOAD), queue="orders"),
        await post(wire, closed(part("meta", b"{}"), PAYLOAD), queue="orders"),
        await post(wire, closed(), queue="orders"),
        await post(wire, closed(META, PAYLOAD), queue="other", namespace="other"),
    ]

    assert [(answer.status_code, answer.json()["queue"]) for answer in answers] == [(200, "orders")] * 4
    assert answers[-1].json()["namespace"] == "default"


META_REFUSALS = {
    "no queue": (b"{}", "missing_queue"),
    "blank queue": (b'{"queue":"  "}', "missing_queue"),
    "broken": (b"{bad", "invalid_body"),
    "two values": (b'{"queue":"orders"}{}', "invalid_body"),
    "array": (b"[]", "invalid_body"),
    "queue is a number": (b'{"queue":1}', "invalid_body"),
    "delay is text": (b'{"queue":"orders","delay_seconds":"1"}', "invalid_body"),
    "delay is a fraction": (b'{"queue":"orders","delay_seconds":1.5}', "invalid_body"),
    "delay above int64": (b'{"queue":"orders","delay_seconds":9223372036854775808}', "invalid_body"),
    "attributes are a list": (b'{"queue":"orders","attributes":[]}', "invalid_body"),
    "attributes are infinite": (b'{"queue":"orders","attributes":{"a":1e400}}', "invalid_body"),
    "attributes are no number": (b'{"queue":"orders","attributes":{"a":NaN}}', "invalid_body"),
    "attributes are deep": (b'{"queue":"orders","attributes":{"a":' + b"[" * 5000 + b"}}", "invalid_body"),
    "attributes are large": (
        b'{"queue":"orders","attributes":{"a":"' + b"x" * 70_000 + b'"}}',
        "invalid_body",
    ),
    "meta is huge": (b'{"queue":"orders","x":"' + b"x" * META_BYTES_MAX + b'"}', "invalid_body"),
    "no utf-8": (b'{"queue":"\xff"}', "invalid_body"),
    "content type with a line end": (
        b'{"queue":"orders","payload_content_type":"a\\r\\nB: c"}',
        "invalid_body",
    ),
    "content type is long": (
        b'{"queue":"orders","payload_content_type":"' + b"a" * 300 + b'"}',
        "invalid_body",
    ),
    "priority out of bounds": (b'{"queue":"orders","priority":1000}', "invalid_body"),
    "queue with a space": (b'{"queue":"Bad Name!"}', "invalid_queue"),
    "queue with a slash": (b'{"queue":"a/b"}', "invalid_queue"),
    "queue is two dots": (b'{"queue":".."}', "invalid_queue"),
    "queue is long": (b'{"queue":"' + b"q" * 129 + b'"}', "invalid_queue"),
    "namespace is reserved": (b'{"queue":"orders","namespace":".txns"}', "invalid_namespace"),
}


@pytest.mark.parametrize("path", ["/v1/queue/enqueue", "/v1/queue/enqueueBatch"])
async def test_meta_that_is_wrong_is_refused(wire: Wire, path: str) -> None:
    for name, (meta, code) in META_REFUSALS.items():
        answer = await wire.post(path, closed(part("meta", meta), PAYLOAD), MULTIPART)

        assert refusal(answer) == (400, code), name
    assert refusal(await take(wire, "orders")) == (409, "waiting")


async def test_meta_that_is_wrong_is_refused_behind_the_payload_too(wire: Wire) -> None:
    for name in ("no queue", "broken", "queue with a space", "namespace is reserved"):
        for payload in (b"hello", LARGE):
            meta, code = META_REFUSALS[name]

            answer = await post(wire, closed(part("payload", payload), part("meta", meta)))

            assert refusal(answer) == (400, code), name


BROKEN = {
    "cut in the payload": closed(META, PAYLOAD)[:-20],
    "cut in a large payload": closed(META, part("payload", LARGE))[:-20],
    "cut behind the payload": META + PAYLOAD,
    "cut in the meta part": META[:-10],
    "cut in a head": closed(META, PAYLOAD)[: len(META) + 20],
    "two meta parts": closed(META, META),
    "meta again behind the payload": closed(META, PAYLOAD, META),
    "ten thousand parts": closed(META, *[part("x", b"")] * 10_000),
    "huge header": closed(META, PAYLOAD).replace(
        b"Content-Type", b"X: " + b"x" * 20_000 + b"\r\nContent-Type"
    ),
    "a hundred thousand headers": closed(META, PAYLOAD).replace(
        b"Content-T", b"X: 1\r\n" * 100_000 + b"Content-T"
    ),
    "header without a colon": closed(META, PAYLOAD).replace(b"Content-Type: ", b"Content-Type "),
    "long preamble": b"x" * 200_000 + closed(META, PAYLOAD),
    "long epilogue": closed(META, PAYLOAD) + b"x" * 200_000,
}


async def test_broken_framing_leaves_nothing_behind(wire: Wire) -> None:
    for name, body in BROKEN.items():
        assert refusal(await post(wire, body)) == (400, "multipart_error"), name
    assert refusal(await take(wire, "orders")) == (409, "waiting")


async def test_a_body_without_parts_names_no_queue(wire: Wire) -> None:
    for body in (b"", b"xx", b'{"queue":"orders"}', b"--other\r\n\r\nx\r\n--other--\r\n"):
        assert refusal(await post(wire, body)) == (400, "missing_queue")
        assert refusal(await post(wire, body, queue="orders")) == (400, "multipart_error")


@pytest.mark.parametrize("path", ["/v1/queue/enqueue", "/v1/queue/enqueueBatch"])
async def test_what_is_not_multipart_is_refused(wire: Wire, path: str) -> None:
    for content_type in ("", "application/json", "text/plain; boundary=x"):
        headers = {"Content-Type": content_type} if content_type else {}
        answer = await wire.post(path, b'{"queue":"orders"}', headers)

        assert refusal(answer) == (400, "invalid_content_type")
    for content_type in ("multipart/form-data", "multipart/related; boundary=" + "b" * 71):
        answer = await wire.post(path, closed(META, PAYLOAD), {"Content-Type": content_type})

        assert refusal(answer) == (400, "multipart_error")


async def test_a_payload_of_any_size_and_any_bytes_comes_back_as_it_was(wire: Wire) -> None:
    for size_bytes in (0, 1, 65_535, 65_536, 65_537, 3_000_000):
        payload = (bytes(range(256)) + b"\r\n--BOUND\r\n--\r\n") * (size_bytes // 256 + 1)

        told = await post(wire, message_body(payload[:size_bytes], queue="orders"))
        taken = await dequeue(wire, "orders")

        assert told.json()["payload_bytes"] == taken.message["payload_bytes"] == size_bytes
        assert taken.payload == payload[:size_bytes]


async def test_a_client_that_hangs_up_in_the_middle_leaves_nothing_behind(wire: Wire) -> None:
    body = closed(META, part("payload", LARGE))
    head = f"POST /v1/queue/enqueue HTTP/1.1\r\nHost: p\r\nContent-Type: {MULTIPART['Content-Type']}\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:-100]

    await wire.talk(request, is_cut_off=True)
    stats = await wire.post("/v1/queue/stats", {"queue": "orders"})

    assert stats.json()["available"] is False
    assert json.loads(stats.text)["total_consumers"] == 0
