"""The language in which etcdctl is told a transaction: comparisons, and operations as its commands."""

import argparse
import re
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NoReturn, get_args

from holdfast.cli.kv.arguments import OrderOption, SortOption
from holdfast.client import Compare, DeleteOp, GetOp, PutOp, TxnOp
from holdfast.client.kv.operation import CompareResult

COMPARES: Final = "compares"
SUCCESS: Final = "success requests (get, put, del)"
FAILURE: Final = "failure requests (get, put, del)"
SECTIONS: Final = (COMPARES, SUCCESS, FAILURE)

_QUOTED: Final = r'"(?:[^"\\]|\\.)*"|`[^`]*`'
_COMPARE: Final = re.compile(rf"(\w+)\(\s*({_QUOTED})\s*\)\s*(!=|[=<>])\s*({_QUOTED})")
_WORD: Final = re.compile(rf"({_QUOTED})|'([^']*)'|([^\s\"'`]\S*)")
_ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|[0-7]{3}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_CONTROLS: Final = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    '"': '"',
}
_TARGETS: Final = {
    **dict.fromkeys(("c", "create"), "create"),
    **dict.fromkeys(("m", "mod"), "mod"),
    **dict.fromkeys(("ver", "version"), "version"),
    **dict.fromkeys(("val", "value"), "value"),
    "lease": "lease",
}
_RESULTS: Final[dict[str, CompareResult]] = {word: word for word in get_args(CompareResult)}

Operation = PutOp | GetOp | DeleteOp


class TxnTextError(ValueError):
    """A line that can't be understood; the text says what was expected."""


class TxnReader:
    """Feed it line by line, and take the transaction out."""

    def __init__(self) -> None:
        self._compares: list[Compare] = []
        self._operations: dict[str, list[Operation]] = {SUCCESS: [], FAILURE: []}

    def feed(self, section: str, line: str) -> None:
        if section == COMPARES:
            self._compares.append(compare_of(line))
        else:
            self._operations[section].append(operation_of(line))

    def operation(self) -> TxnOp:
        return TxnOp(self._compares, self._operations[SUCCESS], self._operations[FAILURE])


def compare_of(line: str) -> Compare:
    """One comparison, as `mod("key") > "0"`."""
    found = _COMPARE.fullmatch(line.strip())
    target = _TARGETS.get(found[1]) if found else None
    if found is None or target is None:
        raise TxnTextError(
            f"{line.strip()}: expected a comparison such as "
            'mod("key") > "0", with create, mod, ver, val or lease, and =, !=, < or >'
        )
    key, result, operand = unquoted(found[2]), _RESULTS[found[3]], unquoted(found[4])
    if target == "value":
        return Compare.value(key, result, operand)
    made: dict[str, Callable[[str, CompareResult, int], Compare]] = {
        "create": Compare.create,
        "mod": Compare.mod,
        "version": Compare.version,
        "lease": Compare.lease,
    }
    return made[target](key, result, _number(operand, 16 if target == "lease" else 10, line))


def operation_of(line: str) -> Operation:
    """One operation, as `put key "value" --prev-kv`."""
    words = words_of(line)
    if not words or words[0] not in ("put", "get", "del"):
        raise TxnTextError(f"{line.strip()}: expected put, get or del")
    try:
        given = _parsers()[words[0]].parse_args(words[1:])
    except TxnTextError as error:
        raise TxnTextError(f"{line.strip()}: {error}") from None
    if words[0] == "put":
        return _put(given, line)
    span = {"range_end": given.range_end, "prefix": given.prefix, "from_key": given.from_key}
    if words[0] == "del":
        return DeleteOp(given.key, **span, prev_kv=given.prev_kv)
    return GetOp(
        given.key,
        **span,
        limit=given.limit,
        revision=given.rev,
        order=given.order.order if given.order else None,
        sort_by=given.sort_by.target,
        keys_only=given.keys_only,
        count_only=given.count_only,
    )


def _put(given: argparse.Namespace, line: str) -> PutOp:
    if (given.value is None) is not given.ignore_value:
        raise TxnTextError(f"{line.strip()}: expected put KEY VALUE, or put KEY --ignore-value")
    lease = _number(given.lease, 16, line) if given.lease else 0
    return PutOp(
        given.key,
        given.value or b"",
        lease=lease,
        prev_kv=given.prev_kv,
        ignore_value=given.ignore_value,
        ignore_lease=given.ignore_lease,
    )


def _number(text: str, base: int, line: str) -> int:
    try:
        return int(text, base)
    except ValueError:
        raise TxnTextError(f"{line.strip()}: {text!r} is no number") from None


def words_of(line: str) -> list[str]:
    """Split at blanks; what stands between quotes is one word."""
    words: list[str] = []
    rest = line.strip()
    while rest:
        found = _WORD.match(rest)
        if found is None or (found.end() < len(rest) and not rest[found.end()].isspace()):
            raise TxnTextError(f"{line.strip()}: a quote that is not closed, or not followed by a blank")
        quoted, verbatim, bare = found.groups()
        words.append(unquoted(quoted) if quoted else bare or verbatim or "")
        rest = rest[found.end() :].lstrip()
    return words


def unquoted(text: str) -> str:
    """A string as Go quotes it. Bytes that are no UTF-8 are kept as Python keeps those of the command line."""
    inner = text[1:-1]
    if text[0] == "`":
        return inner
    pieces: list[bytes] = []
    position = 0
    for found in _ESCAPE.finditer(inner):
        pieces += [_bytes_of(inner[position : found.start()]), _escape(found[1], text)]
        position = found.end()
    pieces.append(_bytes_of(inner[position:]))
    return b"".join(pieces).decode("utf-8", "surrogateescape")


def _bytes_of(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _escape(word: str, text: str) -> bytes:
    if word in _CONTROLS:
        return _CONTROLS[word].encode()
    kind, digits = word[0], word[1:]
    try:
        if kind == "x" and digits:
            return bytes([int(digits, 16)])
        if kind in "uU" and digits:
            return chr(int(digits, 16)).encode()
        return bytes([int(word, 8)]) if len(word) == 3 else _unknown(word, text)
    except (ValueError, OverflowError):
        return _unknown(word, text)


def _unknown(word: str, text: str) -> NoReturn:
    raise TxnTextError(f"{text}: there is no escape \\{word}")


class _Parser(argparse.ArgumentParser):
    """Of one operation; it never ends the program."""

    def error(self, message: str) -> NoReturn:
        raise TxnTextError(message)


@cache
def _parsers() -> dict[str, _Parser]:
    put, get, delete = (_parser(name) for name in ("put", "get", "del"))
    put.add_argument("key")
    put.add_argument("value", nargs="?")
    put.add_argument("--lease", default="")
    _add_flags(put, "--prev-kv", "--ignore-value", "--ignore-lease")
    for ranged in (get, delete):
        ranged.add_argument("key")
        ranged.add_argument("range_end", nargs="?", default="")
        _add_flags(ranged, "--prefix", "--from-key")
    _add_flags(delete, "--prev-kv")
    _add_flags(get, "--keys-only", "--count-only")
    get.add_argument("--limit", type=int, default=0)
    get.add_argument("--rev", type=int, default=0)
    get.add_argument("--order", type=_upper(OrderOption))
    get.add_argument("--sort-by", type=_upper(SortOption), default=SortOption.KEY)
    return {"put": put, "get": get, "del": delete}


def _parser(name: str) -> _Parser:
    return _Parser(prog=name, add_help=False, allow_abbrev=False)


def _add_flags(parser: _Parser, *names: str) -> None:
    for name in names:
        parser.add_argument(name, action="store_true")


def _upper(kind: type[OrderOption] | type[SortOption]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        return kind(text.upper())

    read.__name__ = f"one of {', '.join(kind)}"  # Which argparse puts into its message.
    return read
