"""Every express route, served by the lane and by plain ASGI: the answers are equal byte for byte."""

import pytest

from tests.service.common.sample import BODY_LIMIT_BYTES, Sample, masked, request, serving, status_of

ID = "X-Correlation-Id: test-1"
ORDER = b'{"key":"orders/1","amount":2}'

CONVERSATIONS = {
    "echo": (200, request("POST", "/v1/echo", ORDER, ID)),
    "echo_with_connection_close": (200, request("POST", "/v1/echo", ORDER, ID, "Connection: close")),
    "echo_http_1_0": (200, request("POST", "/v1/echo", ORDER, ID, version="1.0")),
    "echo_http_1_0_keep_alive": (
        200,
        request("POST", "/v1/echo", ORDER, ID, "Connection: keep-alive", version="1.0"),
    ),
    "echo_chunked": (
        200,
        request("POST", "/v1/echo", b"", ID, "Transfer-Encoding: chunked", has_length=False)
        + b'5\r\n{"key\r\n18\r\n":"orders/1","amount":2}\r\n0\r\nX-Trailer: t\r\n\r\n',
    ),
    "echo_with_odd_header_spelling": (
        200,
        request("POST", "/v1/echo", ORDER, "x-CORRELATION-id:   test-2  ", "Accept:*/*"),
    ),
    "echo_by_escaped_path": (200, request("POST", "/v1/%65cho", ORDER, ID)),
    "echo_by_absolute_url": (200, request("POST", "http://test/v1/echo", ORDER, ID)),
    "body_is_no_json": (400, request("POST", "/v1/echo", b"{", ID)),
    "body_is_empty": (400, request("POST", "/v1/echo", b"", ID)),
    "body_has_unknown_field": (400, request("POST", "/v1/echo", b'{"key":"a","colour":1}', ID)),
    "body_has_wrong_type": (400, request("POST", "/v1/echo", b'{"key":1}', ID)),
    "body_has_two_values": (400, request("POST", "/v1/echo", ORDER + ORDER, ID)),
    "body_is_not_utf8": (400, request("POST", "/v1/echo", b'{"key":"\xff"}', ID)),
    "find_with_query": (200, request("GET", "/v1/find?key=a%20b&key=c", b"", ID, "X-Lease-ID: l1", "X-Two: 2")),
    "find_with_empty_query": (200, request("GET", "/v1/find?", b"", ID)),
    "find_with_fragment": (200, request("GET", "/v1/find?key=a#b", b"", ID)),
    "find_by_post": (200, request("POST", "/v1/find?key=x", b"", ID)),
    "find_with_too_many_parameters": (400, request("GET", "/v1/find?" + "a=1&" * 300, b"", ID)),
    "repeated_headers": (200, request("GET", "/v1/find", b"", ID, "X-Correlation-Id: test-9", "X-A: 1", "X-A: 2")),
    "small_at_its_limit": (200, request("POST", "/v1/small", b"x" * 10, ID)),
    "small_above_its_limit": (413, request("POST", "/v1/small", b"x" * 11, ID)),
    "small_chunked_above_its_limit": (
        413,
        request("POST", "/v1/small", b"", ID, "Transfer-Encoding: chunked", has_length=False)
        + b"b\r\nxxxxxxxxxxx\r\n0\r\n\r\n",
    ),
    "raw_small": (200, request("POST", "/v1/raw", b"\x00\xff" * 50, ID)),
    "raw_above_inline_limit": (200, request("POST", "/v1/raw", b"x" * 100_000, ID)),
    "raw_above_route_limit": (413, request("POST", "/v1/raw", b"x" * (BODY_LIMIT_BYTES + 1), ID)),
    "raw_chunked_above_inline_limit": (
        200,
        request("POST", "/v1/raw", b"", ID, "Transfer-Encoding: chunked", has_length=False)
        + b"186a0\r\n" + b"y" * 100_000 + b"\r\n0\r\n\r\n",
    ),
    "raw_chunked_above_route_limit": (
        413,
        request("POST", "/v1/raw", b"", ID, "Transfer-Encoding: chunked", has_length=False)
        + b"30d41\r\n" + b"y" * 200_001 + b"\r\n0\r\n\r\n",
    ),
    "upgrade_is_ignored": (
        200,
        request("GET", "/v1/find?key=u", b"", ID, "Connection: Upgrade", "Upgrade: h2c"),
    ),
    "nothing": (204, request("POST", "/v1/nothing", b"", ID)),
    "unchanged": (304, request("GET", "/v1/unchanged", b"", ID)),
    "held": (409, request("POST", "/v1/held", b"", ID)),
    "broken": (500, request("POST", "/v1/broken", b"", ID)),
    "split_header": (500, request("POST", "/v1/split", b"", ID)),
    "timed": (200, request("POST", "/v1/timed", b"", ID)),
    "unknown_path": (404, request("GET", "/v1/unknown", b"", ID)),
    "unknown_method": (405, request("DELETE", "/v1/echo", b"", ID)),
    "plain_route": (200, request("GET", "/plain", b"", ID)),
    "healthz": (200, request("PUT", "/healthz", b"", ID)),
}  # fmt: skip


async def _all_answers(*, is_express: bool) -> dict[str, bytes]:
    sample = Sample()
    async with serving(sample, is_express=is_express) as (_, raw):
        return {name: await raw.ask(asked) for name, (_, asked) in CONVERSATIONS.items()}


async def test_lane_and_plain_asgi_give_equal_bytes() -> None:
    express = await _all_answers(is_express=True)
    plain = await _all_answers(is_express=False)

    assert {name: status_of(answer) for name, answer in express.items()} == {
        name: status for name, (status, _) in CONVERSATIONS.items()
    }
    for name, answer in express.items():
        assert masked(answer) == masked(plain[name]), name


async def test_every_route_of_the_sample_is_in_the_comparison() -> None:
    asked = b"".join(asked for _, asked in CONVERSATIONS.values())

    missing = [route.path for route in Sample().router().routes if route.path.encode() not in asked]

    assert missing == ["/v1/wait"]  # It ends only when a test lets it.


@pytest.mark.parametrize("is_express", [True, False], ids=["lane", "asgi"])
async def test_fresh_correlation_ids_are_uuid7_and_differ(is_express: bool) -> None:
    async with serving(Sample(), is_express=is_express) as (_, raw):
        answers = [await raw.ask(request("POST", "/v1/nothing")) for _ in range(3)]

    ids = {answer.partition(b"x-correlation-id: ")[2][:36] for answer in answers}
    assert len(ids) == 3
    assert all(found[14:15] == b"7" and found[19:20] in b"89ab" for found in ids)


@pytest.mark.parametrize("is_express", [True, False], ids=["lane", "asgi"])
@pytest.mark.parametrize("offered", ["", "x" * 129, "caf\u00e9", "tab\tinside"])
async def test_unusable_correlation_ids_are_replaced(is_express: bool, offered: str) -> None:
    asked = request("POST", "/v1/nothing", b"", f"X-Correlation-Id: {offered}")

    async with serving(Sample(), is_express=is_express) as (_, raw):
        answer = await raw.ask(asked)

    assert status_of(answer) == 204
    assert len(answer.partition(b"x-correlation-id: ")[2].partition(b"\r\n")[0]) == 36


@pytest.mark.parametrize("is_express", [True, False], ids=["lane", "asgi"])
async def test_a_defect_tells_the_client_nothing(is_express: bool) -> None:
    async with serving(Sample(), is_express=is_express) as (_, raw):
        answer = await raw.ask(request("POST", "/v1/broken"))

    assert b'{"error":"internal_error","detail":"internal server error"}\n' in answer
    assert b"secret" not in answer


@pytest.mark.parametrize("is_express", [True, False], ids=["lane", "asgi"])
async def test_errors_carry_their_fields_and_retry_after(is_express: bool) -> None:
    async with serving(Sample(), is_express=is_express) as (_, raw):
        answer = await raw.ask(request("POST", "/v1/held"))

    assert answer.endswith(
        b'{"error":"waiting","detail":"held by another owner","current_version":3,"retry_after_seconds":7}\n'
    )
    assert b"\r\nretry-after: 7\r\n" in answer
