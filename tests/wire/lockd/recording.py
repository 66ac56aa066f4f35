"""Conversations that were recorded with the original, made ready to be had again.

Ids, etags, boundaries and times are other ones each time. What was learned from an answer (this recorded lease id is
that one now) goes into the requests that follow, and answers are compared with such values left out.
"""

import json
import re
from pathlib import Path
from typing import Final, NamedTuple

_SECTION: Final = re.compile(r"^### (R\d+)\. ", re.MULTILINE)
_BLOCK: Final = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ANYTHING: Final = re.compile(
    r"(?P<etag>(?<=etag\":\")[^\"]+|(?<=etag\": \")[^\"]+|(?<=etag: )\S+)"
    r"|(?P<uuid>\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b)"
    r"|(?P<boundary>\b[0-9a-f]{60}\b)"
    r"|(?P<xid>\b[0-9a-v]{20}\b)"
    r"|(?P<time>\b1[78]\d{8}\b)"
)
_CHUNK_SIZE: Final = re.compile(r"\n[0-9a-f]{1,4}\n")
_FAILURES: Final = re.compile(r'"failure_attempts":\d+,')  # Newer than the recordings.
_NOT_COMPARED: Final = {"date", "connection", "content-length", "transfer-encoding"}


class Recording(NamedTuple):
    """One request and its answer; line ends are bare line feeds, as in the file."""

    name: str
    request: str
    answer: str


class Reply(NamedTuple):
    """An answer: its body has line feeds for line ends, and no chunks."""

    status: int
    headers: dict[str, str]
    body: str

    @property
    def code(self) -> str:
        return str(json.loads(self.body)["error"])


def recordings() -> dict[str, Recording]:
    text = Path(__file__).with_name("queue_recordings.txt").read_text("utf-8")
    names = _SECTION.findall(text)
    sections = _SECTION.split(text)[2::2]
    return {
        name: Recording(name, *_BLOCK.findall(section)) for name, section in zip(names, sections, strict=True)
    }


def raw_request(text: str) -> bytes:
    """A request as its client sent it: with CRLF, and with its length as it is now."""
    head, _, body = text.partition("\n\n")
    lines = [line for line in head.strip("\n").split("\n") if not line.lower().startswith("content-length:")]
    if "Transfer-Encoding: chunked" in lines:
        content = _chunks(body)
    else:
        is_multipart = body.startswith("--")
        content = (body.replace("\n", "\r\n") if is_multipart else body.rstrip("\n")).encode()
        lines.append(f"Content-Length: {len(content)}")
    return "\r\n".join([*lines, "Host: plane", "", ""]).encode() + content


def _chunks(body: str) -> bytes:
    """The recorded chunks; the one line end that is no CRLF is the one that ends the JSON of a meta part."""
    rest = body.replace("\n", "\r\n").encode()
    chunks: list[bytes] = []
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        data = rest[:length]
        if data.endswith(b"}\r"):
            data = data[:-1] + b"\n"
            rest = rest[length + 1 :]
        else:
            rest = rest[length:]
        rest = rest.removeprefix(b"\r\n")
        chunks.append(b"%x\r\n%b\r\n" % (length, data))
    return b"".join(chunks)


def recorded_reply(text: str) -> Reply:
    head, _, body = text.partition("\n\n")
    reply = _reply(head, body)
    if reply.headers.get("transfer-encoding") == "chunked":
        return reply._replace(body=_CHUNK_SIZE.sub("", "\n" + body))
    return reply


def live_reply(head: bytes, body: bytes) -> Reply:
    text = _FAILURES.sub("", body.decode().replace("\r\n", "\n"))
    return _reply(head.decode().replace("\r\n", "\n").strip("\n"), text)


def _reply(head: str, body: str) -> Reply:
    first, *lines = head.split("\n")
    pairs = [line.partition(": ") for line in lines]
    return Reply(int(first.split()[1]), {name.lower(): value for name, _, value in pairs}, body)


class Conversation:
    """What the recorded ids are called this time."""

    def __init__(self) -> None:
        self.now: dict[str, str] = {}

    def request(self, text: str) -> bytes:
        renewed = _ANYTHING.sub(lambda found: self.now.get(found[0], found[0]), text)
        # In a query the slashes of a key hide where an id begins.
        for recorded, now in self.now.items():
            renewed = renewed.replace(recorded, now)
        return raw_request(renewed)

    def compare(self, recorded: Reply, live: Reply) -> None:
        """The same status, headers and body, but for what differs each time; headers of ours may come on top."""
        assert live.status == recorded.status, live
        more = set(live.headers) - set(recorded.headers) - _NOT_COMPARED
        assert more <= {"x-correlation-id"}, live
        if recorded.status >= 400:
            assert (live.code, live.headers.get("retry-after")) == (
                recorded.code,
                recorded.headers.get("retry-after"),
            )
            return
        names = sorted(set(recorded.headers) - _NOT_COMPARED)
        assert self._plain(recorded, names) == self._plain(live, names)
        self._learn(self._text(recorded, names), self._text(live, names))

    def _text(self, reply: Reply, names: list[str]) -> str:
        lines = [f"{name}: {reply.headers.get(name)}" for name in names]
        return "\n".join([*lines, "", reply.body])

    def _plain(self, reply: Reply, names: list[str]) -> str:
        return _ANYTHING.sub(lambda found: f"<{found.lastgroup}>", self._text(reply, names)).rstrip("\n")

    def _learn(self, recorded: str, live: str) -> None:
        for before, now in zip(_ANYTHING.finditer(recorded), _ANYTHING.finditer(live), strict=True):
            if before.lastgroup == "time":
                continue
            assert self.now.setdefault(before[0], now[0]) == now[0], f"{before[0]} changed its meaning"
