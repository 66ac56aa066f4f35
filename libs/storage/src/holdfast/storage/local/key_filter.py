"""Which stretches of the history have a change of a key: Bloom filters, one for each block of revisions.

They are made by reads of the past that walk over a block, and kept in memory: commits do not know of them. A block of which
every revision is durable does not change any more, except that compaction drops it.
"""

from collections.abc import Sequence

BLOCK_SHIFT = 7  # 128 revisions a block.
FILTERS_MAX = 2048  # Twice the default history; the oldest go first. Mostly 1 to 4 KiB each, 16 KiB at most.
BITS_PER_KEY = (
    16  # With four probes about 1 of 400 answers is a false alarm, which costs a look at the block.
)
BITS_MAX = 1 << 17


class KeyFilter:
    """A set of keys that may say yes to one that it does not have."""

    __slots__ = ("_bits", "_mask")

    def __init__(self, keys: Sequence[bytes]) -> None:
        size = 64
        while size < min(BITS_MAX, len(keys) * BITS_PER_KEY):
            size *= 2
        self._mask = size - 1
        self._bits = bytearray(size // 8)
        for key in keys:
            for place in self._places(hash(key)):
                self._bits[place >> 3] |= 1 << (place & 7)

    def may_hold(self, key_hash: int) -> bool:
        bits = self._bits
        return all(bits[place >> 3] & 1 << (place & 7) for place in self._places(key_hash))

    def _places(self, key_hash: int) -> tuple[int, int, int, int]:
        mask = self._mask
        return key_hash & mask, (key_hash >> 15) & mask, (key_hash >> 30) & mask, (key_hash >> 45) & mask


class KeyFilters:
    """The filters of a store, by block."""

    def __init__(self) -> None:
        self._by_block: dict[int, KeyFilter] = {}

    def add(self, block: int, keys: Sequence[bytes]) -> None:
        if len(self._by_block) == FILTERS_MAX:
            del self._by_block[min(self._by_block)]
        self._by_block[block] = KeyFilter(keys)

    def skip(self, key: bytes, after: int, upto: int) -> int:
        """The last revision from `after` to `upto` before which the key is known not to change."""
        key_hash = hash(key)
        while after < upto:
            block = (after + 1) >> BLOCK_SHIFT
            known = self._by_block.get(block)
            if known is None or known.may_hold(key_hash):
                return after
            after = block_end(block)
        return min(after, upto)

    def is_missing(self, block: int) -> bool:
        return block not in self._by_block


def block_start(block: int) -> int:
    return block << BLOCK_SHIFT


def block_end(block: int) -> int:
    """The last revision of it."""
    return ((block + 1) << BLOCK_SHIFT) - 1
