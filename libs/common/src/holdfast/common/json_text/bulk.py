"""Checks and compacts all items of a piece of JSON at once, by passes in C over the whole piece.

A step in Python for each token would be ten times as slow. The passes only ever say yes: where one of them finds
anything out of order, the compactor goes through the piece token by token and finds out what it is.
"""

import re
from typing import Final

from holdfast.common.json_text.grammar import match_items
from holdfast.common.json_text.white_space import WHITE_SPACE, join_at_quotes, split_at_quotes

_CONTROLS: Final = bytes(set(range(0x20)) - set(WHITE_SPACE))
_has_bad_escape = re.compile(rb"\\(?![/bfnrt]|u[0-9a-fA-F]{4})").search
_has_parted_scalar = re.compile(rb"[0-9A-Za-z.+-][ \t\n\r]++[0-9A-Za-z.+-]").search

# The skeleton of a text: its brackets, and its commas by what follows them.
_ELEMENT_COMMA: Final = b","
_MEMBER_COMMA: Final = b"k"
_NO_SKELETON: Final = bytes(set(range(256)) - set(b"[]{}" + _ELEMENT_COMMA + _MEMBER_COMMA))
_LEVELS_PER_ROUND: Final = 4
_INSIDE: Final = {ord("]"): ord("["), ord("}"): ord("{"), ord(","): ord("["), ord("k"): ord("{")}


def compact_items(text: bytes, before: bytes, opened: bytearray, depth_max: int) -> tuple[bytes, int] | None:
    """Compact as far as the last comma between items; also says how many bytes that took.

    `before` stands for what came before the text, `opened` has the open containers and is brought up to date. None,
    and nothing changed, when there is no such comma or the text up to it is not beyond doubt.
    """
    if len(text.translate(None, _CONTROLS)) != len(text):
        return None
    parts = split_at_quotes(text)
    last = (len(parts) - 1) // 2 * 2
    while last >= 0 and b"," not in parts[last]:
        last -= 2
    if last < 0:
        return None
    end = parts[last].rindex(b",") + 1
    left_bytes = len(parts[last]) - end + sum(map(len, parts[last + 1 :])) + len(parts) - 1 - last
    parts[last] = parts[last][:end]
    del parts[last + 1 :]
    between = b'"'.join(parts[::2])
    tight = between.translate(None, WHITE_SPACE)
    if not _are_contents_valid(b'"'.join(parts[1::2])):
        return None
    if len(tight) != len(between):
        if _has_parted_scalar(between):
            return None
        parts[::2] = tight.split(b'"')
    structure = before + tight
    items = match_items(structure)
    assert items is not None
    if items.end() != len(structure) or not _nest(structure, opened, depth_max):
        return None
    return join_at_quotes(parts), len(text) - left_bytes


def _are_contents_valid(contents: bytes) -> bool:
    """Whether strings have neither white space that needs an escape nor an escape that means nothing."""
    if len(contents.translate(None, b"\t\n\r")) != len(contents):
        return False
    return b"\\" not in contents or _has_bad_escape(contents) is None


def _nest(structure: bytes, opened: bytearray, depth_max: int) -> bool:
    """Whether brackets pair, and commas stand in a container of their kind; then `opened` is brought up to date."""
    # What the last comma is depends on what follows; here it matters only that a container is open.
    skeleton = structure[:-1].replace(b',":', _MEMBER_COMMA).translate(None, _NO_SKELETON)
    reduced, rounds = _without_inner_containers(skeleton)
    still_open = bytearray(opened)
    depth_bound = len(opened) + reduced.count(b"[") + reduced.count(b"{") + rounds * _LEVELS_PER_ROUND
    is_valid = _walk(reduced if depth_bound <= depth_max else skeleton, still_open, depth_max)
    if not is_valid or not still_open:
        return False
    opened[:] = still_open
    return True


def _without_inner_containers(skeleton: bytes) -> tuple[bytes, int]:
    """The skeleton without containers that pair, as long as this makes it much shorter, and how many rounds it took."""
    rounds = 0
    size = 2 * len(skeleton)
    while len(skeleton) * 4 < size * 3:
        rounds += 1
        size = len(skeleton)
        for comma in (_ELEMENT_COMMA, _MEMBER_COMMA):
            while comma * 2 in skeleton:
                skeleton = skeleton.replace(comma * 8, comma).replace(comma * 2, comma)
        for container in (b"[,]", b"{k}", b"[]", b"{}"):
            skeleton = skeleton.replace(container, b"")
    return skeleton, rounds


def _walk(skeleton: bytes, opened: bytearray, depth_max: int) -> bool:
    for byte in skeleton:
        if byte in b"[{":
            if len(opened) == depth_max:
                return False
            opened.append(byte)
        elif not opened or opened[-1] != _INSIDE[byte]:
            return False
        elif byte in b"]}":
            opened.pop()
    return True
