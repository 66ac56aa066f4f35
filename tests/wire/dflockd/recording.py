"""Conversations that were recorded from dflockd: who sends what, what comes back, and when a connection ends."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["send", "receive", "close", "closed", "silent", "note"]

_STEP = re.compile(
    r"(?P<who>[A-Z]) (?:"
    r'-> (?P<sent>".*")'
    r'|<- (?P<got>"(?:.*)")(?:\s+\[(?P<after_s>[0-9.]+)s\])?'
    r"|<- \(connection closed by server.*\)(?P<closed>)"
    r"|<- \(nothing within (?P<silent_s>[0-9.]+)s\)"
    r"|-- (?P<note>.*))"
)
_REPEATED = re.compile(r'"([^"]*)" \+ ([0-9]+) x "(.)" \+ "([^"]*)"')
_TEXT = re.compile(r'\\(["\\nrt])')
_CHARACTERS = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"'}


@dataclass(frozen=True, slots=True)
class Step:
    who: str
    kind: Kind
    data: bytes = b""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Recording:
    name: str
    title: str
    steps: tuple[Step, ...]


def recordings() -> dict[str, Recording]:
    text = (Path(__file__).parent / "recordings.txt").read_text()
    found = {}
    for section in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        head, _, rest = section.partition("\n")
        name, _, title = head.partition(". ")
        lines = rest.partition("```\n")[2].partition("```")[0].splitlines()
        found[name] = Recording(name, title, tuple(_step(line) for line in lines if line))
    return found


def _step(line: str) -> Step:
    if line.startswith("-- "):
        return Step("", "note", note=line[3:])
    match = _STEP.fullmatch(line)
    assert match is not None, line
    who = match["who"]
    if match["sent"] is not None:
        return Step(who, "send", _bytes(match["sent"]))
    if match["got"] is not None:
        return Step(who, "receive", _bytes(match["got"]))
    if match["closed"] is not None:
        return Step(who, "closed")
    if match["silent_s"] is not None:
        return Step(who, "silent")
    note = match["note"]
    return Step(who, "close") if note == "closes" else Step(who, "note", note=note)


def _bytes(quoted: str) -> bytes:
    repeated = _REPEATED.fullmatch(quoted)
    if repeated is not None:
        before, count, character, after = repeated.groups()
        return (_unquoted(before) + character * int(count) + _unquoted(after)).encode()
    return _unquoted(quoted[1:-1]).encode()


def _unquoted(text: str) -> str:
    return _TEXT.sub(lambda match: _CHARACTERS[match[1]], text)
