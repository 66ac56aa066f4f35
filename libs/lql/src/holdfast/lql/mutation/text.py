"""Mutation text to mutations: set, count and remove, each at a pointer."""

import base64
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from holdfast.lql.document.value import encode_text
from holdfast.lql.errors import InvalidMutations, quoted
from holdfast.lql.fragment import Fragment, split_outside, unquoted
from holdfast.lql.number import is_infinite, json_number, parse_float, parse_integer, tidy_bound
from holdfast.lql.pointer import SEGMENTS_MAX, PointerSyntaxError, Segment, Wildcard, parse_pointer
from holdfast.lql.temporal import format_utc, parse_temporal

# Every level of blocks is scanned again, so this is also what keeps the cost of a text linear.
NESTING_MAX = 16
WILDCARDS_MAX = 16

_REMOVES = ("rm:", "remove:", "delete:", "del:")
_CONSTANTS = {"true": b"true", "false": b"false", "null": b"null"}

ReadFile = Callable[[str], bytes]
"""Brings the content of the file that `file:/path=name` names; only programs beside the user's files have one."""


@dataclass(frozen=True, slots=True)
class Set:
    """Puts a scalar, given as JSON."""

    segments: tuple[Segment, ...]
    encoded: bytes


@dataclass(frozen=True, slots=True)
class Increment:
    """Adds to a number."""

    segments: tuple[Segment, ...]
    delta: int | float


@dataclass(frozen=True, slots=True)
class Remove:
    """Takes a member away."""

    segments: tuple[Segment, ...]


Mutation = Set | Increment | Remove


class Mode(Enum):
    """Whether commas and newlines separate expressions (`script`) or belong to the value (`exprs`)."""

    EXPRESSIONS = "exprs"
    SCRIPT = "script"


class FileKind(Enum):
    """How the content of a file becomes a text."""

    AUTO = "file:"
    TEXT = "textfile:"
    BASE64 = "base64file:"


def parse_mutations(
    expressions: Sequence[str],
    *,
    now_ns: int,
    mode: Mode = Mode.EXPRESSIONS,
    read_file: ReadFile | None = None,
) -> list[Mutation]:
    """All mutations in order; `now_ns` (since 1970, UTC) is what NOW means. Raises InvalidMutations."""
    reader = _Reader(now_ns, read_file)
    found: list[Mutation] = []
    for number, expression in enumerate(expressions, start=1):
        try:
            found.extend(reader.read_all(expression, mode))
        except InvalidMutations as error:
            if len(expressions) == 1:
                raise
            raise InvalidMutations(
                f"mutation {number}: {error.problem}", position=error.position, hint=error.hint
            ) from None
    if not found:
        raise InvalidMutations("there is no mutation", hint="like /status=open, /count++ or rm:/draft")
    if (
        sum(isinstance(segment, Wildcard) for mutation in found for segment in mutation.segments)
        > WILDCARDS_MAX
    ):
        raise InvalidMutations(f"one call has at most {WILDCARDS_MAX} wildcards", hint="split it")
    return found


@dataclass(slots=True)
class _Reader:
    now_ns: int
    read_file: ReadFile | None

    def read_all(self, expression: str, mode: Mode) -> Iterator[Mutation]:
        whole = Fragment(expression)
        for piece in split_outside(whole, InvalidMutations) if mode is Mode.SCRIPT else [whole.stripped()]:
            if piece.text:
                yield from self._read(piece, (), 0)

    def _read(self, piece: Fragment, outer: tuple[Segment, ...], depth: int) -> Iterator[Mutation]:
        piece, is_remove = _without_prefix(piece, _REMOVES)
        piece, is_time = _without_prefix(piece, ("time:",))
        if is_remove and is_time:
            raise InvalidMutations("a time cannot be removed", position=piece.position, hint="write rm:/path")
        if is_remove:
            yield Remove(_segments(piece, outer))
            return
        sign = {"++": 1, "--": -1}.get(piece.text[-2:])
        if sign is not None:
            if is_time:
                raise InvalidMutations(
                    "a time cannot be counted", position=piece.position, hint="write time:/path=NOW"
                )
            yield Increment(_segments(piece.part(0, -2), outer), sign)
            return
        brace = piece.text.find("{")
        if piece.text.endswith("}") and brace > 0 and "=" not in piece.text[:brace]:
            yield from self._block(piece, brace, outer, depth)
            return
        yield self._assignment(piece, outer, is_time=is_time)

    def _block(
        self, piece: Fragment, brace: int, outer: tuple[Segment, ...], depth: int
    ) -> Iterator[Mutation]:
        if depth == NESTING_MAX:
            raise InvalidMutations(f"blocks are nested at most {NESTING_MAX} deep", position=piece.position)
        path = _segments(piece.part(0, brace), outer)
        inner = split_outside(piece.part(brace + 1, -1), InvalidMutations)
        if not inner:
            raise InvalidMutations(
                "the block is empty", position=piece.position + brace, hint="like /a{/b=1,/c=2}"
            )
        for expression in inner:
            yield from self._read(expression, path, depth + 1)

    def _assignment(self, piece: Fragment, outer: tuple[Segment, ...], *, is_time: bool) -> Mutation:
        equals = piece.text.find("=")
        if equals < 0:
            raise InvalidMutations(
                f"{quoted(piece.text)} changes nothing",
                position=piece.position,
                hint="write /path=value, /path++, /path-- or rm:/path",
            )
        path, value = piece.part(0, equals).stripped(), piece.part(equals + 1).stripped()
        kind = next((kind for kind in FileKind if path.text.startswith(kind.value)), None)
        if kind is not None and not is_time:
            return Set(_segments(path.part(len(kind.value)), outer), self._file(kind, value))
        segments = _segments(path, outer)
        if is_time:
            return Set(segments, self._time(value))
        delta = _delta(value)
        return Set(segments, _typed(value)) if delta is None else Increment(segments, delta)

    def _time(self, value: Fragment) -> bytes:
        literal = unquoted(value.text).strip()
        moment = parse_temporal(literal)
        if literal.lower() == "now":
            written = format_utc(self.now_ns)
        else:
            written = format_utc(moment.instant_ns) if moment is not None and moment.has_zone else None
        if written is None:
            raise InvalidMutations(
                f"{quoted(value.text)} is no time",
                position=value.position,
                hint="write NOW or 2025-01-31T10:00:00Z",
            )
        return encode_text(written)

    def _file(self, kind: FileKind, value: Fragment) -> bytes:
        if self.read_file is None:
            raise InvalidMutations(
                "file values are disabled here", position=value.position, hint="send the value itself"
            )
        content = self.read_file(unquoted(value.text))
        if kind is not FileKind.BASE64:
            try:
                text = content.decode()
                if kind is FileKind.TEXT or "\0" not in text:
                    return encode_text(text)
            except UnicodeDecodeError:
                if kind is FileKind.TEXT:
                    raise InvalidMutations(
                        f"{quoted(value.text)} is no UTF-8 text",
                        position=value.position,
                        hint="use base64file:",
                    ) from None
        return encode_text(base64.b64encode(content).decode())


def _without_prefix(piece: Fragment, prefixes: Sequence[str]) -> tuple[Fragment, bool]:
    for prefix in prefixes:
        if piece.text.startswith(prefix):
            return piece.part(len(prefix)).stripped(), True
    return piece, False


def _segments(path: Fragment, outer: tuple[Segment, ...]) -> tuple[Segment, ...]:
    hint = "write it like /status or /progress/count"
    try:
        pointer = parse_pointer(path.text)
    except PointerSyntaxError as error:
        raise InvalidMutations(str(error), position=path.position, hint=hint) from None
    if pointer.is_root:
        raise InvalidMutations("the document itself cannot be changed", position=path.position, hint=hint)
    segments = outer + pointer.segments
    if len(segments) > SEGMENTS_MAX:
        raise InvalidMutations(f"a path has more than {SEGMENTS_MAX} segments", position=path.position)
    return segments


def _delta(value: Fragment) -> int | float | None:
    """A value with a sign counts; quoted or not a number it is assigned."""
    if value.text[:1] not in ("+", "-"):
        return None
    if is_infinite(value.text):
        raise _uncarried(value)
    delta = parse_float(value.text)
    if delta is None:
        return None
    if delta == 0:
        raise InvalidMutations(
            "adding zero changes nothing", position=value.position, hint='to assign it write "0"'
        )
    exact = parse_integer(value.text)
    return tidy_bound(delta) if exact is None else exact


def _typed(value: Fragment) -> bytes:
    """true, false, null and numbers, also within quotes; else text."""
    text = unquoted(value.text)
    constant = _CONSTANTS.get(text.lower())
    if constant is not None:
        return constant
    integer = parse_integer(text)
    number = parse_float(text) if integer is None else integer
    if number is not None:
        return json_number(number).encode()
    if is_infinite(text):
        raise _uncarried(value)
    return encode_text(text)


def _uncarried(value: Fragment) -> InvalidMutations:
    return InvalidMutations(
        f"{quoted(value.text)} is a number that JSON cannot carry", position=value.position
    )
