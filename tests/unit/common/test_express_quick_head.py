"""The quick look takes a request only when the real parser would see the very same one."""

import httptools
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.common.express.message import Request
from holdfast.common.express.protocol import RequestLines
from holdfast.common.express.route import compile_table
from tests.infra.examples import examples
from tests.service.common.sample import Sample, request

LINES = RequestLines(compile_table(Sample().router().routes), inline_body_bytes=100)


class _Parsed:
    """What httptools makes of the same bytes."""

    def __init__(self, data: bytes) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""
        self.messages = 0
        parser = httptools.HttpRequestParser(self)
        parser.feed_data(data)
        self.method = parser.get_method().decode()
        self.keeps_alive = parser.should_keep_alive()

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.messages += 1


def _check(data: bytes) -> bool:
    quick = LINES.recognise(data)
    if quick is None or quick.size != len(data):
        return False
    body = data[len(quick.head) :]
    parsed = _Parsed(data)
    assert parsed.messages == 1
    assert parsed.keeps_alive
    assert (parsed.method, parsed.body) == (quick.method, body)
    path = quick.route.path
    assert parsed.url == path.encode() + (b"?" + quick.query if b"?" in parsed.url else b"")
    headers = Request(quick.method, path, quick.query, quick.header_lines, body, None, None, "").headers
    assert headers == parsed.headers
    offered = dict(reversed(headers)).get(b"x-correlation-id")
    assert quick.correlation_id == (offered.decode() if offered is not None else None)
    return True


def test_plain_requests_are_taken() -> None:
    assert _check(request("POST", "/v1/echo", b"{}"))
    assert _check(request("GET", "/v1/find?key=a&b=%20", b"", "X-Correlation-Id: my id", "Accept: */*"))
    assert _check(request("POST", "/v1/echo", b"{}", "x-correlation-id: 1", "User-Agent: Go-http-client/1.1"))


def test_everything_else_is_left_to_the_parser() -> None:
    for odd in (
        request("POST", "/v1/echo", b"{}", "Connection: close"),
        request("POST", "/v1/echo", b"{}", "Expect: 100-continue"),
        request("POST", "/v1/echo", b"{}", "Transfer-Encoding: chunked"),
        request("POST", "/v1/echo", b"{}", "Content-Length: 2"),
        request("POST", "/v1/echo", b"{}", "Upgrade: h2c"),
        request("POST", "/v1/echo", b"{}", version="1.0"),
        request("POST", "/v1/echo", b"{}") + b"x",
        request("POST", "/v1/echo", b"{}")[:-1],
        request("POST", "/v1/echo", b"{}", "X-Correlation-Id: 1", "X-Correlation-Id: 2"),
        request("POST", "/v1/echo", b"{}", "X:no-space"),
        request("POST", "/v1/echo", b"{}", "X: tab\t"),
        request("POST", "/v1/echo", b"{}", "X: " + "y" * 1000),
        request("GET", "/v1/find?" + "y" * 3000),
        request("GET", "/v1/find?a b"),
        request("GET", "/v1/find?a#b"),
        request("POST", "/v1/raw", b"x" * 101),
        request("POST", "/v1/small", b"x" * 11),
        request("GET", "/unknown"),
        b"",
        b"\r\n",
    ):
        assert not _check(odd), odd


_fragments = st.sampled_from(
    [
        b"POST /v1/echo HTTP/1.1\r\n",
        b"GET /v1/find?k=1 HTTP/1.1\r\n",
        b"GET /v1/find HTTP/1.0\r\n",
        b"Host: a\r\n",
        b"content-length: 2\r\n",
        b"Content-Length: 0\r\n",
        b"X-Correlation-Id: abc\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: close\r\n",
        b"A: b: c\r\n",
        b" folded\r\n",
        b"a:  b \r\n",
        b"\r\n",
        b"ab",
        b"\n",
        b"\x00",
    ]
)


@settings(max_examples=examples(400), deadline=None)
@given(st.lists(_fragments, min_size=1, max_size=8).map(b"".join))
@example(b"POST /v1/echo HTTP/1.1\r\nHost: a\r\ncontent-length: 2\r\n\r\nab")
def test_what_is_taken_means_the_same_to_the_parser(data: bytes) -> None:
    _check(data)
