"""Makes the blocking client of the SDK, `sync/`, from the asynchronous one, `aio/`.

`python -m clients.python.generate_sync` writes the modules; with `--check` it fails if one is not current.

It works on tokens: `async` and `await` go, names are replaced, and everything else stays as it is written. Then ruff
drops imports that nothing needs any longer, and formats. What waits in another way in each of the two worlds is written
by hand on both sides, under the same names, in the modules of `BY_HAND`.
"""

import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator, Sequence
from difflib import unified_diff
from itertools import accumulate
from pathlib import Path
from typing import Final, NamedTuple

PACKAGE: Final = Path(__file__).parent / "src" / "holdfast" / "client"
BY_HAND: Final = frozenset({"__init__.py", "concurrency.py", "pool.py", "renewer.py", "tcp/connection.py"})

KEYWORDS: Final = frozenset({"async", "await"})
NAMES: Final = {
    "AsyncSource": "SyncSource",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "aclose": "close",
    "aclosing": "closing",
    "aio": "sync",
    "aiter": "iter",
    "aiter_raw": "iter_raw",
    "anext": "next",
    "async_chunks": "chunks",
    "asynccontextmanager": "contextmanager",
    "enter_async_context": "enter_context",
}
"""What `AsyncIterator` and the like are called follows from their names."""
UNWRAPPED: Final = frozenset({"Awaitable", "Coroutine", "Pending"})
"""Types that stand for their last argument, because a blocking call returns it at once."""
PHRASES: Final = {
    "Belongs to one event loop.": "Threads may share it.",
    "Cancelling it cancels the handlers.": "One thread each; this one waits.",
    "When the lease is lost, the handler is cancelled.": (
        "A thread can't be cancelled: a long handler should look at `session.lost`."
    ),
    "When the lock is lost, a call that runs is cancelled, and LeaseLost raised.": (
        "A thread can't be cancelled: when the lock is lost, LeaseLost is raised at the end of the call."
    ),
    "task": "thread",
    "tasks": "threads",
}
"""What docstrings and comments say of waiting."""

_CLASS: Final = re.compile(r"Async(?=[A-Z])")
_WORD: Final = re.compile(r"\w+")
_KEYWORD_IN_TEXT: Final = re.compile(r"\basync (?=with\b|for\b|def\b)|\bawait (?=\w)")
_PHRASE: Final = re.compile("|".join(rf"\b{re.escape(phrase)}(?!\w)" for phrase in PHRASES))
_TEXT_TOKENS: Final = (tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", -1))
_RUFF_RULES: Final = "I,F401,SIM117,UP028"
"""Imports that are needed and sorted, one `with` for several, `yield from`: what only `async` stood in the way of."""


class Edit(NamedTuple):
    """The source between two offsets becomes `text`."""

    start: int
    end: int
    text: str


def blocking(source: str) -> str:
    """The blocking twin of asynchronous source, not formatted yet."""
    pieces: list[str] = []
    position = 0
    for edit in sorted(_edits(source)):
        pieces += [source[position : edit.start], edit.text]
        position = edit.end
    return "".join([*pieces, source[position:]])


def _edits(source: str) -> Iterator[Edit]:
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    spans = _spans(source, tokens)
    for index, (token, (start, end)) in enumerate(zip(tokens, spans, strict=True)):
        text = source[start:end]
        if token.type == tokenize.NAME:
            has_arguments = tokens[index + 1].string == "["
            if text in KEYWORDS:
                yield Edit(start, spans[index + 1][0], "")
            elif text in UNWRAPPED and has_arguments:
                last, closing = _last_argument(tokens, index + 1)
                yield Edit(start, spans[last][0], "")
                yield Edit(*spans[closing], "")
            elif text == "AsyncGenerator" and has_arguments:
                _, closing = _last_argument(tokens, index + 1)
                yield Edit(start, end, "Generator")
                yield Edit(*spans[closing], ", None]")  # A blocking one has a type of what it returns, too.
            elif (name := renamed(text)) != text:
                yield Edit(start, end, name)
        elif token.type in _TEXT_TOKENS and (prose := reworded(text)) != text:
            yield Edit(start, end, prose)


def _spans(source: str, tokens: Sequence[tokenize.TokenInfo]) -> list[tuple[int, int]]:
    """Where each token begins and ends, as offsets."""
    lines = [0, *accumulate(len(line) for line in io.StringIO(source))]
    lines.append(len(source))  # The end marker stands on a line of its own.
    return [
        (lines[token.start[0] - 1] + token.start[1], lines[token.end[0] - 1] + token.end[1])
        for token in tokens
    ]


def _last_argument(tokens: Sequence[tokenize.TokenInfo], opening: int) -> tuple[int, int]:
    """The index of the first token of the last argument between brackets, and of the closing bracket."""
    last, depth = opening + 1, 0
    for index in range(opening, len(tokens)):
        token = tokens[index].string
        if token in ("[", "("):
            depth += 1
        elif token in ("]", ")"):
            depth -= 1
            if depth == 0:
                return last, index
        elif token == "," and depth == 1:
            last = index + 1
    raise ValueError("a bracket that is never closed")


def renamed(name: str) -> str:
    """What the same thing is called in the blocking client."""
    return NAMES.get(name) or _CLASS.sub("", name)


def reworded(text: str) -> str:
    """Docstrings, comments and strings that speak of the blocking client."""
    text = _PHRASE.sub(lambda match: PHRASES[match.group()], _KEYWORD_IN_TEXT.sub("", text))
    return _WORD.sub(lambda match: renamed(match.group()), text)


def sources() -> list[Path]:
    """The asynchronous modules that have a generated twin."""
    aio = PACKAGE / "aio"
    return sorted(path for path in aio.rglob("*.py") if path.relative_to(aio).as_posix() not in BY_HAND)


def twin(source: Path) -> Path:
    """The blocking module of an asynchronous one."""
    return PACKAGE / "sync" / source.relative_to(PACKAGE / "aio")


def generated(source: Path) -> str:
    """What the blocking twin of a module has to be."""
    name = source.relative_to(PACKAGE).as_posix()
    header = f"# Generated from {name} by generate_sync.py: change that, then run `make sync-client`.\n"
    return formatted(header + blocking(source.read_text(encoding="utf-8")), twin(source))


def formatted(code: str, path: Path) -> str:
    """By ruff, with the settings that apply to `path`."""
    fixed = _ruff(code, path, "check", "--fix-only", "--unsafe-fixes", "--quiet", "--select", _RUFF_RULES)
    return _ruff(fixed, path, "format")


def _ruff(code: str, path: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "ruff", *arguments, "--no-cache", "--stdin-filename", str(path), "-"]
    return subprocess.run(command, input=code, stdout=subprocess.PIPE, text=True, check=True).stdout


def main(arguments: Sequence[str]) -> int:
    """Write what is not current, or with `--check` show it and fail."""
    is_check = list(arguments) == ["--check"]
    is_current = True
    for source in sources():
        path, made = twin(source), generated(source)
        present = path.read_text(encoding="utf-8") if path.exists() else ""
        if made == present:
            continue
        if is_check:
            is_current = False
            _show(source, present, made)
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(made, encoding="utf-8")
    return 0 if is_current else 1


def _show(source: Path, present: str, made: str) -> None:
    name, path = source.relative_to(PACKAGE).as_posix(), str(twin(source))
    lines = [text.splitlines(keepends=True) for text in (present, made)]
    sys.stdout.writelines(unified_diff(lines[0], lines[1], path, f"made from {name}"))
    sys.stdout.write(f"{path} is not what {name} makes: run make sync-client\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
