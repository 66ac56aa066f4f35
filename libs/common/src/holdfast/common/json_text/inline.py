"""Compaction of a JSON document that is in memory as a whole."""

from typing import Final

from pydantic_core import from_json

from holdfast.common.json_text.compactor import Compactor
from holdfast.common.json_text.grammar import match_tight_document
from holdfast.common.json_text.white_space import without_white_space

_PARSED_BYTES_MAX: Final = 64 * 1024
"""A parsed document takes many times the memory of its text; a larger one is checked without being parsed."""
_SLICE_BYTES: Final = 64 * 1024


def compact(text: bytes) -> bytes:
    """The document without insignificant white space; InvalidBody when it is not exactly one JSON value."""
    tight = match_tight_document(text)
    if tight is not None and _is_utf_8(text):
        return tight[1]
    if len(text) <= _PARSED_BYTES_MAX and _is_plainly_valid(text):
        return without_white_space(text)
    compactor = Compactor()
    slices = (text[start : start + _SLICE_BYTES] for start in range(0, len(text), _SLICE_BYTES))
    return b"".join([*map(compactor.feed, slices), compactor.finish()])


def _is_utf_8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_plainly_valid(text: bytes) -> bool:
    """True only for valid JSON; this parser refuses more than it must (lone surrogates, deep nesting, long integers)."""
    try:
        from_json(text, allow_inf_nan=False, cache_strings="none")
    except ValueError:
        return False
    return True
