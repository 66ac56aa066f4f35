"""What the index knows of a large document: one record instead of thousands of entries. Pure.

    filter        a Bloom filter over all its entries: what is not in it, the document does not have
    lows, highs   of each path and kind the smallest and the largest entry: a span beside all of them holds nothing

What a summary lets through is evaluated on the document itself. So it may let through too much, and never too little.
"""

import re
from bisect import bisect_left
from hashlib import blake2b
from typing import Final

from holdfast.state.layer.index.plan import AllOf, AnyOf, Plan, Postings, Span
from holdfast.state.layer.index.terms import NULL
from holdfast.state.layer.records_pb2 import SummaryContent

# About 100 MB of memory while the summary is made; a document that says more is evaluated by every query.
ENTRIES_MAX: Final = 1_000_000
PATHS_MAX: Final = 4096
# One in a hundred terms that the document does not have is let through.
_BITS_PER_ENTRY: Final = 10
_PROBES: Final = 7
_FILTER_BYTES_MIN: Final = 64
_HASH_BYTES: Final = 8
_HALF_BITS: Final = 32
_HALF_MASK: Final = (1 << _HALF_BITS) - 1
_PATH: Final = re.compile(rb"@(?:[^\0]++|\0\xff)*+\0", re.DOTALL)
_KIND_BYTES: Final = len(NULL)


class TooManyEntries(Exception):
    """The document says more than a summary can hold."""


class SummaryBuilder:
    """Takes the entries of one document, each as often as it comes."""

    def __init__(self) -> None:
        self._hashes: set[int] = set()
        self._spans: dict[bytes, tuple[bytes, bytes]] | None = {}

    def add(self, entry: bytes) -> None:
        self._hashes.add(_hash(entry))
        if len(self._hashes) > ENTRIES_MAX:
            raise TooManyEntries
        if self._spans is not None:
            self._widen(self._spans, entry)

    def build(self) -> bytes:
        size_bytes = max(_FILTER_BYTES_MIN, len(self._hashes) * _BITS_PER_ENTRY // 8)
        bits = bytearray(size_bytes)
        for hashed in self._hashes:
            for bit in _bits(hashed, size_bytes):
                bits[bit >> 3] |= 1 << (bit & 7)
        spans = sorted((self._spans or {}).values())
        content = SummaryContent(
            filter=bytes(bits),
            lows=[low for low, _ in spans],
            highs=[high for _, high in spans],
            has_spans=self._spans is not None,
        )
        return content.SerializeToString(deterministic=True)

    def _widen(self, spans: dict[bytes, tuple[bytes, bytes]], entry: bytes) -> None:
        path = _PATH.match(entry)
        assert path is not None, "every entry begins with its path"
        group = entry[: path.end() + _KIND_BYTES]
        low, high = spans.get(group, (entry, entry))
        spans[group] = min(low, entry), max(high, entry)
        if len(spans) > PATHS_MAX:
            self._spans = None


class Summary:
    """A summary as it is asked."""

    __slots__ = ("_filter", "_has_spans", "_highs", "_lows", "size_bytes")

    def __init__(self, encoded: bytes) -> None:
        content = SummaryContent.FromString(encoded)
        self.size_bytes = len(encoded)
        self._filter = content.filter
        self._lows, self._highs = list(content.lows), list(content.highs)
        self._has_spans = content.has_spans

    def may_match(self, plan: Plan) -> bool:
        """False: no document with these entries matches the selector of the plan."""
        if isinstance(plan, Postings):
            return self._has(plan.entry)
        if isinstance(plan, Span):
            return self._overlaps(plan)
        if isinstance(plan, AnyOf):
            return any(self.may_match(part) for part in plan.parts)
        if isinstance(plan, AllOf):
            return all(self.may_match(part) for part in plan.parts)
        return True

    def _has(self, entry: bytes) -> bool:
        bits = self._filter
        return not bits or all(bits[bit >> 3] & 1 << (bit & 7) for bit in _bits(_hash(entry), len(bits)))

    def _overlaps(self, span: Span) -> bool:
        if not self._has_spans:
            return True
        at = bisect_left(self._highs, span.start)  # Groups lie side by side, so highs are in order too.
        return at < len(self._lows) and self._lows[at] < span.end


def _hash(entry: bytes) -> int:
    return int.from_bytes(blake2b(entry, digest_size=_HASH_BYTES).digest())


def _bits(hashed: int, size_bytes: int) -> list[int]:
    first, step, bit_count = hashed >> _HALF_BITS, hashed & _HALF_MASK | 1, size_bytes * 8
    return [(first + probe * step) % bit_count for probe in range(_PROBES)]
