"""Standard streams: they may be closed, and the reader of one may have gone away."""

import errno
import os
import sys
from typing import IO, Final, TextIO

import typer

from holdfast.cli.output import failure

BROKEN_PIPE: Final = 141
"""128 + SIGPIPE, as a shell shows it for a program that dies of the signal."""


def standard_input() -> IO[bytes]:
    """The bytes of standard input; ends the program if it is closed."""
    return _bytes_of(sys.stdin, "standard input")


def standard_output() -> IO[bytes]:
    """The bytes of standard output, for data; ends the program if it is closed. Other results are just not printed."""
    return _bytes_of(sys.stdout, "standard output")


def _bytes_of(stream: TextIO | None, name: str) -> IO[bytes]:
    if stream is None:
        raise failure(f"{name} is closed; name a file")
    return stream.buffer


def is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def is_broken_pipe(error: BaseException) -> bool:
    """Also within a group, as the tasks of a command raise it."""
    if isinstance(error, BaseExceptionGroup):
        return any(is_broken_pipe(member) for member in error.exceptions)
    return isinstance(error, OSError) and error.errno == errno.EPIPE


def broken_pipe() -> typer.Exit:
    """The reader is gone: raise the result to end the program without a word."""
    silence(sys.stdout)
    silence(sys.stderr)
    return typer.Exit(BROKEN_PIPE)


def silence(stream: TextIO | None) -> None:
    """Let what is still in a stream go nowhere, so that the last flush of the program finds a place for it."""
    if stream is None or _takes_all(stream):
        return
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return  # It is none of the system's.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _takes_all(stream: TextIO) -> bool:
    """Whether what waits in a stream can still be written."""
    try:
        stream.flush()
    except (OSError, ValueError):
        return False
    return True


def flushed_status(status: int | str | None) -> int | str | None:
    """The status to end with, when the last of the output has found its place or not."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        silence(sys.stdout)
        if is_broken_pipe(error):
            return BROKEN_PIPE
        return status or _no_room(error)
    return status


def _no_room(error: OSError) -> int:
    typer.echo(f"error: standard output: {error.strerror}", err=True)
    return 1
