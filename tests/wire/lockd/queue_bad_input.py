"""Wrong requests for the endpoints of queues: members that they know, and multipart bodies broken in one place."""

import json
from typing import Final

from tests.wire.lockd.bad_input import ODD_JSON, ODD_NUMBERS, BadInput

MEMBERS: Final = (
    "queue", "namespace", "owner", "txn_id", "visibility_timeout_seconds", "page_size", "start_after", "message_id", "lease_id",
    "fencing_token", "meta_etag", "state_etag", "state_lease_id", "state_fencing_token", "delay_seconds", "intent", "last_error",
    "extend_by_seconds", "messages", "message_ids", "limit", "after", "payloads", "paused", "deliveries_per_second", "max_attempts",
    "ttl_seconds", "attributes", "payload_content_type", "priority", "unknown",
)  # fmt: skip
NUMBERS: Final = tuple(
    name for name in MEMBERS if name.endswith(("_seconds", "_token", "limit", "attempts", "page_size"))
)
HEADS: Final = (
    b'Content-Disposition: form-data; name="meta"', b'Content-Disposition: form-data; name="payload"', b"Content-Type: a/b",
    b"Content-Disposition: form-data", b"Content-Disposition: ;;;", b'Content-Disposition: form-data; name="meta', b"", b"no colon",
    b" folded: 1", b": 1", b"A: " + b"x" * 20_000, b'content-disposition:form-data;name=meta;filename="\xff\x00"',
)  # fmt: skip
ENDS: Final = (b"--b--\r\n", b"--b--", b"--b\r\n", b"--b", b"", b"--B--\r\n", b"--b--\r\nepilogue")
CONTENT_TYPES: Final = (
    b"multipart/related; boundary=b", b'multipart/form-data; boundary="b"', b"multipart/x;boundary=b;boundary=c", b"multipart/form-data",
    b"multipart/related; boundary=" + b"b" * 80, b"application/json", b"multipart/; boundary=b", b"\xff/\xff; boundary=\xff",
)  # fmt: skip


class QueueBadInput(BadInput):
    """No request waits: a dequeue that is right by accident would do so for ever."""

    def _query(self) -> bytes:
        query = super()._query()
        return query + (b"&" if query else b"?") + b"wait_seconds=-1"

    def _headers(self) -> list[tuple[bytes, bytes]]:
        headers = super()._headers()
        if self._is_multipart:
            rng = self._rng
            kind = CONTENT_TYPES[0] if rng.random() < 0.7 else rng.choice(CONTENT_TYPES)
            headers = [(name, value) for name, value in headers if name != b"Content-Type"]
            headers.append((b"Content-Type", kind))
        return headers

    @property
    def _is_multipart(self) -> bool:
        return "enqueue" in self._path

    def _body(self) -> bytes:
        return self._parts() if self._is_multipart and self._rng.random() < 0.9 else super()._body()

    def _parts(self) -> bytes:
        rng = self._rng
        pieces: list[bytes] = [rng.choice((b"", b"", b"", b"preamble\r\n", b"\r\n--bb\r\n"))]
        for number in range(rng.choice((0, 1, 2, 2, 2, 3, 200))):
            lines = [HEADS[number % 2]] if rng.random() < 0.7 else rng.choices(HEADS, k=rng.randint(0, 3))
            content = (
                super()._body() if number % 2 == 0 else rng.choice((b"", b"x", b"\r\n--b", b"--b--\r\n"))
            )
            pieces += [b"--b\r\n", *[line + b"\r\n" for line in lines], b"\r\n", content, b"\r\n"]
        body = b"".join(pieces) + (ENDS[0] if rng.random() < 0.6 else rng.choice(ENDS))
        if rng.random() < 0.2 and body:
            place = rng.randrange(len(body))
            body = body[:place] + bytes([rng.randrange(256)]) + body[place + rng.randint(0, 2) :]
        return body.replace(b"\r\n", b"\n") if rng.random() < 0.1 else body

    def _object(self) -> bytes:
        rng = self._rng
        members = dict.fromkeys(NUMBERS, "1")
        members |= {"queue": json.dumps(self._unique()), "owner": '"tester"', "wait_seconds": "-1"}
        members |= {
            "message_id": '"01a1e1b7-726b-7a9f-8c65-fb7a38489e73"',
            "lease_id": '"l"',
            "meta_etag": '"m"',
        }
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
