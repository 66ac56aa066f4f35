"""A directory that a query fills, with a file for each document."""

import re
from pathlib import Path
from typing import Final

from holdfast.cli.files import written

_DASHED: Final = re.compile(r"[/\\\s]")
_ODD: Final = re.compile(r"[^A-Za-z0-9._-]")


class DocumentFolder:
    """Names files by keys. Two keys that would share a name get two, so that no document is lost."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._keys_by_name: dict[str, str] = {}

    def put(self, key: str, document: bytes) -> None:
        with written(str(self._folder / self._name(key))) as out:
            out.write(document)

    def _name(self, key: str) -> str:
        plain = name = file_name(key)
        number = 1
        # A key comes twice when it was written again while the pages were read: the newer document wins.
        while self._keys_by_name.setdefault(name, key) != key:
            number += 1
            name = f"{plain}-{number}"
        return f"{name}.json"


def file_name(key: str) -> str:
    """A key without what a file system or a shell would stumble over; not even `..` is left of a path."""
    return _ODD.sub("_", _DASHED.sub("-", key))
