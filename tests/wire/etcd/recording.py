"""Conversations that were recorded from etcd's JSON gateway, and how an answer of today is held against one of them.

Ids of the cluster, of nodes and of leases that the server chose are other ones each time. The first live one stands for the
recorded one from then on; everything else has to be the same, the order of members included.
"""

import base64
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

_SECTION: Final = re.compile(
    r"^### (?P<name>E\d+)\. [^\n]*\n```\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_REQUEST: Final = re.compile(r"(?P<method>[A-Z]+) (?P<path>\S+)(?: \((?P<header>[^:]+): (?P<value>[^)]+)\))?")
_ANSWER: Final = re.compile(r"-> (?P<status>\d{3}) (?P<type>[^ ]+(?: charset=\S+)?)(?P<chunked> chunked)?")
_HEADER: Final = re.compile(r"HDR\[(?:(?P<revision>\d+)|no revision)\]")
_LOCK_KEY: Final = re.compile(rb"(.+/)[0-9a-f]{16}")
_DECIMAL: Final = re.compile(r"[1-9]\d*")

NODE_IDS: Final = {"cluster_id", "member_id", "raft_term", "leader", "raftTerm"}
CHOSEN_MIN: Final = 1 << 50
"""No client of the recordings chose an id as large as those of the server."""


class Recording(NamedTuple):
    """One request and its answer. `status` None: there was none. `lines` are the chunks of a stream, or the body."""

    name: str
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    status: int | None
    content_type: str
    is_stream: bool
    lines: tuple[str, ...]

    @property
    def messages(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]


def recordings() -> dict[str, Recording]:
    text = Path(__file__).with_name("recordings.txt").read_text("utf-8")
    return {found["name"]: _recording(found["name"], found["text"]) for found in _SECTION.finditer(text)}


def _recording(name: str, text: str) -> Recording:
    lines = text.splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("-> "))
    request = _REQUEST.fullmatch(lines[0])
    assert request is not None, lines[0]
    headers = {request["header"]: request["value"]} if request["header"] else {}
    answer = _ANSWER.fullmatch(lines[at])
    assert answer is not None or lines[at] == "-> no answer", lines[at]
    return Recording(
        name,
        request["method"],
        request["path"],
        headers,
        "\n".join(lines[1:at]).encode(),
        None if answer is None else int(answer["status"]),
        "" if answer is None else answer["type"],
        answer is not None and answer["chunked"] is not None,
        tuple(_HEADER.sub(_whole_header, line) for line in lines[at + 1 :]),
    )


def _whole_header(found: re.Match[str]) -> str:
    members = {"cluster_id": "13711186353524502871", "member_id": "2132900575081389944"}
    if found["revision"] is not None:
        members["revision"] = found["revision"]
    return json.dumps({**members, "raft_term": "2"})


class Comparison:
    """Recorded values beside live ones. Each of several nodes has an id of its own."""

    def __init__(self) -> None:
        self._learned: dict[tuple[str, int, str], str] = {}

    def check(self, recorded: Any, live: Any, *, node: int = 0) -> None:
        self._check(recorded, live, "", node)

    def _check(self, recorded: Any, live: Any, name: str, node: int) -> None:
        assert type(live) is type(recorded), (name, live, recorded)
        if isinstance(recorded, dict):
            assert list(live) == list(recorded), (live, recorded)
            for member in recorded:
                self._check(recorded[member], live[member], member, node)
        elif isinstance(recorded, list):
            assert len(live) == len(recorded), (name, live, recorded)
            for before, now in zip(recorded, live, strict=True):
                self._check(before, now, name, node)
        else:
            self._check_value(recorded, live, name, node)

    def _check_value(self, recorded: Any, live: Any, name: str, node: int) -> None:
        if name in NODE_IDS:
            assert _DECIMAL.fullmatch(live), (name, live)
            assert int(live) < 1 << 64
            self.learn(name, recorded, live, node=node if name in ("member_id", "leader") else 0)
        elif name in ("ID", "lease") and int(recorded) >= CHOSEN_MIN:
            assert _DECIMAL.fullmatch(live), (name, live)
            assert int(live) < 1 << 63
            self.learn("lease", recorded, live)
        elif name == "key" and (found := _LOCK_KEY.fullmatch(base64.b64decode(recorded))):
            assert re.fullmatch(re.escape(found[1]) + rb"[0-9a-f]+", base64.b64decode(live)), live
            self.learn("key", recorded, live)
        else:
            assert live == recorded, name

    def learn(self, kind: str, recorded: str, live: str, *, node: int = 0) -> None:
        assert self._learned.setdefault((kind, node, recorded), live) == live, f"{kind} changed its meaning"
