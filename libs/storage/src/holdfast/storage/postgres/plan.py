"""A group of batches as the arrays that `commit_group` takes, cut into waves that do not depend on themselves."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.storage.port import Batch

GROUP_BYTES_MAX = 16 << 20
WAVES_MAX = (
    32  # A wave costs as much as a small group: batches on one hot key rather wait for the next group.
)


@dataclass(slots=True)
class GroupPlan:
    """The arguments of `commit_group`; rows name their batch by its place, counted from 1."""

    batch_count: int = 0
    size_bytes: int = 0
    wave_ends: list[int] = field(default_factory=list)
    has_writes: list[bool] = field(default_factory=list)
    has_deletes: bool = False
    expect_batch: list[int] = field(default_factory=list)
    expect_key: list[bytes] = field(default_factory=list)
    expect_revision: list[int] = field(default_factory=list)
    range_batch: list[int] = field(default_factory=list)
    range_start: list[bytes] = field(default_factory=list)
    range_end: list[bytes | None] = field(default_factory=list)
    range_revision: list[int] = field(default_factory=list)
    write_batch: list[int] = field(default_factory=list)
    write_key: list[bytes] = field(default_factory=list)
    write_value: list[bytes | None] = field(default_factory=list)
    blob_batch: list[int] = field(default_factory=list)
    blob_key: list[bytes] = field(default_factory=list)
    blob_id: list[str] = field(default_factory=list)
    _written: set[bytes] = field(default_factory=set)  # Keys that the current wave writes.

    def add(self, batch: Batch) -> bool:
        """Take one more batch, or say that the group is full."""
        size_bytes = sum(map(len, batch.puts)) + sum(map(len, batch.puts.values()))
        if self.batch_count and self.size_bytes + size_bytes > GROUP_BYTES_MAX:
            return False
        if self._depends_on_wave(batch):
            if len(self.wave_ends) + 1 == WAVES_MAX:
                return False
            self.wave_ends.append(self.batch_count)
            self._written.clear()
        self.batch_count += 1
        self.size_bytes += size_bytes
        self._append(batch, self.batch_count)
        return True

    def arguments(self) -> tuple[object, ...]:
        """In the order of the function's parameters, from `p_wave_ends` on; those of rare kinds only if needed."""
        common = (
            [*self.wave_ends, self.batch_count],
            self.has_writes,
            self.has_deletes,
            self.expect_batch,
            self.expect_key,
            self.expect_revision,
            self.write_batch,
            self.write_key,
            self.write_value,
        )
        if not self.range_batch and not self.blob_batch:
            return common
        ranges = (self.range_batch, self.range_start, self.range_end, self.range_revision)
        return (*common, *ranges, self.blob_batch, self.blob_key, self.blob_id)

    def _depends_on_wave(self, batch: Batch) -> bool:
        written = self._written
        if not written:
            return False
        if not (
            written.isdisjoint(batch.expects)
            and written.isdisjoint(batch.puts)
            and written.isdisjoint(batch.deletes)
        ):
            return True
        return any(
            start <= key and (end is None or key < end)
            for start, end, _ in batch.expect_ranges
            for key in written
        )

    def _append(self, batch: Batch, place: int) -> None:
        self.has_writes.append(bool(batch.puts or batch.deletes))
        if batch.expects:
            self.expect_batch += [place] * len(batch.expects)
            self.expect_key += batch.expects
            self.expect_revision += batch.expects.values()
        for start, end, revision in batch.expect_ranges:
            self.range_batch.append(place)
            self.range_start.append(start)
            self.range_end.append(end)
            self.range_revision.append(revision)
        if batch.puts:
            self._append_writes(place, list(batch.puts), list(batch.puts.values()))
        if batch.deletes:
            self.has_deletes = True
            self._append_writes(place, sorted(batch.deletes), [None] * len(batch.deletes))
        for key, blob_ids in batch.blobs.items():
            self.blob_batch += [place] * len(blob_ids)
            self.blob_key += [key] * len(blob_ids)
            self.blob_id += blob_ids

    def _append_writes(self, place: int, keys: list[bytes], values: Sequence[bytes | None]) -> None:
        self.write_batch += [place] * len(keys)
        self.write_key += keys
        self.write_value += values
        self._written.update(keys)
