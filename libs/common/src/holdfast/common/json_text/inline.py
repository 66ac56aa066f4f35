"""Compaction of a JSON document that is in memory as a whole."""

from typing import Final

from holdfast.common.json_text.compactor import Compactor
from holdfast.common.json_text.completed import compacted

_SLICE_BYTES: Final = 64 * 1024


def compact(text: bytes) -> bytes:
    """The document without insignificant white space; InvalidBody when it is not exactly one JSON value."""
    tight = compacted(text)
    if tight is not None and _is_utf_8(text):
        return tight
    compactor = Compactor()
    slices = (text[start : start + _SLICE_BYTES] for start in range(0, len(text), _SLICE_BYTES))
    return b"".join([*map(compactor.feed, slices), compactor.finish()])


def _is_utf_8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
