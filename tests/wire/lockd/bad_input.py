"""Requests that are wrong in one or several ways, the same for the same seed."""

import json
import random
from typing import Final, NamedTuple

ODD_NUMBERS: Final = (
    "-1", "0", "-0", "1e400", "-1e400", "9223372036854775807", "9223372036854775808", "-9223372036854775809",
    "1.5", "1E2", "NaN", "Infinity", "0x10", "1_000", "+1", "9" * 400, "00", ".5", "1.", "١",
)  # fmt: skip
ODD_TEXTS: Final = (
    "", " ", "\t", "\x00", "\x7f", "\u2028", "é", "e\u0301", "🔒", "\ufeff", "\u202e", "..", "../../etc/passwd", "/", "//",
    "a/../b", "%00", "%2e%2e", "null", "true", "{}", "'; --", "${x}", "{{x}}", "\\", '"', "-", "a b", "A" * 300, "ß" * 600,
    "q/x/state/y",
)  # fmt: skip
ODD_JSON: Final = (
    "null", "true", "[]", "{}", '""', '"\\ud800"', '"\\u0000"', "[" * 3000, "{" * 2000 + "}" * 2000, "[" * 500 + "]" * 500,
    '{"a":1,"a":2}', "[1,]", "{'a':1}", '"unterminated', "nul", "1 2", "\ufeff{}", "/*x*/{}", "[NaN]", '{"a":Infinity}',
)  # fmt: skip
HEADERS: Final = (
    "X-Lease-ID", "X-Txn-ID", "X-Fencing-Token", "X-If-Version", "X-If-State-ETag", "X-Expected-SHA256",
    "X-Expected-Bytes", "X-Lockd-Meta-Query-Hidden", "X-Correlation-Id", "Content-Type", "Content-Encoding", "Accept",
    "Range", "If-None-Match", "X-Attachment-Name", "Traceparent", "Cookie", "Authorization", "X-" + "n" * 200,
)  # fmt: skip
QUERY: Final = (
    "key",
    "namespace",
    "public",
    "name",
    "id",
    "attachment",
    "prevent_overwrite",
    "owner",
    "other",
)
MEMBERS: Final = (
    "key", "namespace", "owner", "ttl_seconds", "block_seconds", "if_not_exists", "txn_id", "lease_id", "rollback",
    "query_hidden", "mutations", "unknown",
)  # fmt: skip
WATCH_QUERY: Final = ("namespace", "prefix", "after", "format", "unknown")
METHODS: Final = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "BREW", "post")


class BadRequest(NamedTuple):
    """Bytes for one connection. `is_cut`: they end before the request does."""

    data: bytes
    is_cut: bool

    @property
    def may_be_unanswered(self) -> bool:
        """No answer is owed to half a request."""
        return self.is_cut


class BadInput:
    """A source of requests for one endpoint."""

    def __init__(self, method: str, path: str, seed: int) -> None:
        self._method = method
        self._path = path
        self._rng = random.Random(f"{seed} {method} {path}")
        self.count = 0

    def next(self) -> BadRequest:
        self.count += 1
        rng = self._rng
        method = rng.choice(METHODS) if rng.random() < 0.08 else self._method
        suffix = rng.choice(("/", "/x", "//", "%2f", ";a=b", "%")) if rng.random() < 0.04 else ""
        target = (self._path + suffix).encode() + self._query()
        return self._framed(b"%b %b HTTP/1.1" % (method.encode(), target), self._headers(), self._body())

    def _unique(self) -> str:
        """No two requests name the same key, or one would rightly wait for the other's lease."""
        return f"bad-{self._method.lower()}-{self.count}-{self._rng.randrange(10**9)}"

    def _text(self) -> str:
        return self._rng.choice((self._rng.choice(ODD_TEXTS), self._rng.choice(ODD_NUMBERS), self._unique()))

    def _query(self) -> bytes:
        rng = self._rng
        pairs = [(b"key", self._unique().encode())] if rng.random() < 0.7 else []
        more = rng.choice((0, 0, 1, 2, 3))
        pairs += [(rng.choice(QUERY).encode(), self._query_value()) for _ in range(more)]
        if not pairs:
            return b""
        return b"?" + b"&".join(name + b"=" + value for name, value in pairs)

    def _query_value(self) -> bytes:
        text = self._text().encode("utf-8", "surrogatepass")
        if self._rng.random() < 0.2:
            return self._rng.choice(
                (b"%", b"%zz", b"%ff%fe", b"%c0%80", b"%00", b"+", b"a=b=c", b"%ed%a0%80")
            )
        return b"".join(b"%%%02x" % byte for byte in text)

    def _headers(self) -> list[tuple[bytes, bytes]]:
        rng = self._rng
        names = rng.sample(HEADERS, rng.randint(0, 5))
        if rng.random() < 0.5:
            names += ["X-Lease-ID", "X-Txn-ID", "X-Fencing-Token"]
        return [(name.encode(), self._header_value()) for name in names]

    def _header_value(self) -> bytes:
        if self._rng.random() < 0.15:
            return bytes(self._rng.choice(range(128, 256)) for _ in range(self._rng.randint(1, 40)))
        if self._rng.random() < 0.03:
            return b"v" * self._rng.choice((5_000, 70_000))
        return self._text().encode("utf-8", "surrogatepass").replace(b"\r", b"").replace(b"\n", b"")

    def _body(self) -> bytes:
        rng = self._rng
        kind = rng.random()
        if kind < 0.1:
            return rng.choice(ODD_JSON).encode()
        if kind < 0.15:
            return bytes(rng.randrange(256) for _ in range(rng.randint(0, 200)))
        if kind < 0.18:
            return b'{"key":"' + b"x" * rng.choice((70_000, 300_000)) + b'"}'
        text = self._object()
        if kind < 0.3:
            return text[: rng.randrange(len(text))]
        if kind < 0.4:
            place = rng.randrange(len(text))
            return text[:place] + bytes([rng.randrange(256)]) + text[place + 1 :]
        return text

    def _object(self) -> bytes:
        """A right body in which some members are odd, missing, doubled or unknown."""
        rng = self._rng
        members = {
            "key": json.dumps(self._unique()),
            "owner": '"tester"',
            "ttl_seconds": "1",
            "block_seconds": "-1",
        }
        members |= {"lease_id": '"0123456789abcdefghij"', "txn_id": '""'}
        for name in rng.sample(MEMBERS, rng.randint(0, 3)):
            members[name] = rng.choice(
                (rng.choice(ODD_JSON), rng.choice(ODD_NUMBERS), json.dumps(self._text()))
            )
        if rng.random() < 0.2:
            members.pop(rng.choice(list(members)))
        pairs = [f'"{name}":{value}' for name, value in members.items()]
        if rng.random() < 0.1:
            pairs.append(rng.choice(pairs))
        return ("{" + ",".join(pairs) + "}").encode("utf-8", "surrogatepass")

    def _framed(self, first_line: bytes, headers: list[tuple[bytes, bytes]], body: bytes) -> BadRequest:
        """Usually with the right length; sometimes with a wrong one, in odd chunks, or cut off."""
        rng = self._rng
        lines = [
            first_line,
            b"Host: plane",
            b"Connection: close",
            *[name + b": " + value for name, value in headers],
        ]
        kind = rng.random()
        if kind < 0.03:
            lines.append(b"Content-Length: " + rng.choice((b"-1", b"x", b"1, 2", b"", b"9" * 30, b"0x4")))
            return BadRequest(b"\r\n".join(lines) + b"\r\n\r\n" + body, is_cut=True)
        if kind < 0.06:
            lines.append(b"Content-Length: %d" % (len(body) + rng.choice((1, 100, 10**6, 10**12))))
            return BadRequest(b"\r\n".join(lines) + b"\r\n\r\n" + body, is_cut=True)
        if kind < 0.1:
            lines.append(b"Transfer-Encoding: chunked")
            whole = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
            chunks = rng.choice(
                (whole, b"zz\r\n", b"5\r\nab", b"5\r\nabcdefgh\r\n", b"ffffffffffffffffff\r\n")
            )
            return BadRequest(b"\r\n".join(lines) + b"\r\n\r\n" + chunks, is_cut=True)
        if kind < 0.12:
            return BadRequest(b"\r\n".join(lines)[: rng.randint(1, 200)], is_cut=True)
        lines.append(b"Content-Length: %d" % len(body))
        return BadRequest(b"\r\n".join(lines) + b"\r\n\r\n" + body, is_cut=False)


LOCK_MEMBERS: Final = (
    "key", "key_base64", "limit", "ttl_seconds", "wait_seconds", "owner", "ticket", "token", "force", "fencing_token", "channel",
    "payload", "payload_base64", "unknown",
)  # fmt: skip
LOCK_QUERY: Final = ("key", "prefix", "limit", "cursor", "pattern", "group")


class LockBadInput(BadInput):
    """The same for locks and signals."""

    def _query(self) -> bytes:
        rng = self._rng
        names = rng.sample(LOCK_QUERY, rng.randint(0, 4))
        return b"?" + b"&".join(name.encode() + b"=" + self._query_value() for name in names)

    def _object(self) -> bytes:
        rng = self._rng
        members = {"key": json.dumps(self._unique()), "limit": "1", "ttl_seconds": "1", "owner": '"tester"'}
        if "signals" in self._path:
            members = {"channel": json.dumps(self._unique()), "payload": '"x"'}
        for name in rng.sample(LOCK_MEMBERS, rng.randint(0, 3)):
            members[name] = rng.choice(
                (rng.choice(ODD_JSON), rng.choice(ODD_NUMBERS), json.dumps(self._text()))
            )
        if rng.random() < 0.2:
            members.pop(rng.choice(list(members)))
        pairs = [f'"{name}":{value}' for name, value in members.items()]
        return ("{" + ",".join(pairs) + "}").encode("utf-8", "surrogatepass")


class WatchBadInput(BadInput):
    """A watch that is wrong, or right by accident."""

    def _query(self) -> bytes:
        rng = self._rng
        names = rng.sample(WATCH_QUERY, rng.randint(0, 4))
        return b"?" + b"&".join(name.encode() + b"=" + self._query_value() for name in names)

    def _headers(self) -> list[tuple[bytes, bytes]]:
        headers = super()._headers()
        if self._rng.random() < 0.5:
            headers.append((b"Last-Event-ID", self._rng.choice(ODD_NUMBERS).encode()))
        if self._rng.random() < 0.3:
            headers.append((b"Accept", b"application/x-ndjson"))
        return headers
