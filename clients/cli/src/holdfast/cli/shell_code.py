"""Commands whose output a shell evaluates: `eval "$(holdfast client acquire …)"`.

A shell doesn't see the status of a command within `eval "$(…)"`. So a command that fails prints code that takes the
variables of an older lease or message away and has the status of the command: the eval fails, and `set -e` ends the script.
"""

import os
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand

INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM


class EvaluatedCommand(TyperCommand):
    """Prints such code when it fails for any reason: a wrong option, an answer, a catchable signal."""

    variables: ClassVar[tuple[str, ...]] = ()
    """What a success would have set, and a failure takes away."""
    output_options: ClassVar[tuple[str, ...]] = ("--output", "-o")

    def make_context(self, info_name: Any, args: list[str], parent: Any = None, **extra: Any) -> Any:
        words = list(args)  # Parsing takes them away.
        try:
            return super().make_context(info_name, args, parent, **extra)
        except BaseException as error:
            if self.is_evaluated_as_typed(words):
                _print_failure(self.variables, error, is_on_stderr=False)
            raise

    def invoke(self, ctx: Any) -> Any:
        try:
            with _told_to_terminate():
                return super().invoke(ctx)
        except BaseException as error:
            if self.is_evaluated(ctx.params):
                _print_failure(self.variables, error, is_on_stderr=ctx.params.get("file") == "-")
            raise

    def is_evaluated(self, options: Mapping[str, Any]) -> bool:
        """Whether a success would have printed shell code."""
        return bool(options["output"] == "text")

    def is_evaluated_as_typed(self, words: Sequence[str]) -> bool:
        """The same for a command line that makes no sense."""
        return not asks_for_json(words, self.output_options)


def asks_for_json(words: Sequence[str], options: Iterable[str]) -> bool:
    """Whether one of these options has that value, also in a line that makes no sense otherwise."""
    for option in options:
        joined = f"{option}=json" if option.startswith("--") else f"{option}json"
        if joined in words or (option, "json") in pairwise(words):
            return True
    return False


def leftovers(names: Iterable[str], exported: Iterable[str]) -> str:
    """A line that takes away what an older success exported and this one doesn't; nothing if there is nothing such."""
    old = [name for name in names if name in os.environ and name not in set(exported)]
    return f"unset {' '.join(old)}\n" if old else ""


def _print_failure(variables: Iterable[str], error: BaseException, *, is_on_stderr: bool) -> None:
    status = _status_of(error)
    stream = sys.stderr if is_on_stderr else sys.stdout
    if status == 0 or stream is None or stream.isatty():  # On a terminal the code would be noise.
        return
    try:
        typer.echo(f"unset {' '.join(variables)}\n(exit {status})", file=stream)
    except OSError:
        return  # The shell is gone; the error itself is told in its own way.


def _status_of(error: BaseException) -> int:
    """What the program will end with."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    status = error.code if isinstance(error, SystemExit) else getattr(error, "exit_code", 1)
    return status if isinstance(status, int) else 1


@contextmanager
def _told_to_terminate() -> Iterator[None]:
    """SIGTERM ends the command as an error does: `timeout` sends it."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
