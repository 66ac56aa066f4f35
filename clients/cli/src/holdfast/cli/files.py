"""Files of the user: read whole, and written so that a reader sees the old content or the new, never a part."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from holdfast.cli.output import failure
from holdfast.cli.streams import standard_input, standard_output
from holdfast.lql.errors import InvalidMutations

STANDARD = "-"
"""The name that means standard input or output."""


def read_whole(file: str) -> bytes:
    """The content of a file; ends the program if it can't be read."""
    try:
        return standard_input().read() if file == STANDARD else Path(file).read_bytes()
    except OSError as error:
        raise failure(f"{file}: {error.strerror}") from None


def file_value(name: str) -> bytes:
    """What a mutation such as `file:/photo=~/photo.jpg` names."""
    try:
        return Path(name).expanduser().read_bytes()
    except (OSError, RuntimeError, ValueError) as error:
        raise InvalidMutations(f"cannot read the file {name}: {error}") from error


@contextmanager
def written(file: str) -> Iterator[IO[bytes]]:
    """Where a result goes; a file takes its name when all of it is there, and keeps its mode and its links."""
    if file == STANDARD:
        out = standard_output()
        yield out
        out.flush()
        return
    try:
        with _replaced(Path(file).resolve()) as opened:
            yield opened
    except OSError as error:
        raise failure(f"{file}: {error.strerror}") from None


@contextmanager
def _replaced(path: Path) -> Iterator[IO[bytes]]:
    # A pipe or a terminal has no content to keep, and its name must stay what it is.
    if path.exists() and not path.is_file():
        with path.open("wb") as opened:
            yield opened
        return
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as opened:
            yield opened
            opened.flush()
            os.fsync(opened.fileno())
        _take_mode(Path(name), path)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _take_mode(new: Path, old: Path) -> None:
    if old.exists():
        shutil.copymode(old, new)
        return
    mask = os.umask(0)
    os.umask(mask)
    new.chmod(0o666 & ~mask)
