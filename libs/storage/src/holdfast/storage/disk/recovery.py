"""Reading the journal back: every segment in order, each checked to go on where the one before it ended."""

from collections.abc import Iterator
from pathlib import Path

from holdfast.storage.disk import segment
from holdfast.storage.disk.segment import Seal, SegmentHeader
from holdfast.storage.errors import StoreCorrupt


class RecoveredSegment:
    """One segment: after `entries` is exhausted, where it ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header: SegmentHeader = segment.read_header(path)
        self.offset = segment.HEADER_BYTES
        self.revision = self.header.base_revision
        self.is_sealed = False

    def entries(self, successor: Path | None) -> Iterator[bytes]:
        for record in segment.read_records(self.path, self.header):
            yield from record.entries
            self.offset = record.end_offset
            self.revision = record.last_revision
        self._check_seal(self._seal(successor), successor)

    def end(self) -> Seal:
        return Seal(self.offset, self.revision)

    def _seal(self, successor: Path | None) -> Seal | None:
        try:
            return segment.read_seal(self.path, self.header)
        except StoreCorrupt:
            if successor is None:
                raise
            return None  # Half a seal: then the successor is there, and its base revision says the same.

    def _check_seal(self, seal: Seal | None, successor: Path | None) -> None:
        if seal is None:
            return
        self.is_sealed = True
        if seal != self.end():
            raise StoreCorrupt(
                f"{self.path}: the journal segment ends at byte {self.offset} with revision {self.revision}, its seal "
                f"says byte {seal.end_offset} and revision {seal.last_revision}; restore a backup"
            )
        if successor is None:
            raise StoreCorrupt(
                f"{self.path}: the journal segment is sealed at revision {seal.last_revision} and the one that follows "
                "it is missing; put the missing file back or restore a backup"
            )


class Recovery:
    """All segments of a folder, for an engine that has everything up to `applied_revision`."""

    def __init__(self, folder: Path, applied_revision: int) -> None:
        self._folder = folder
        self._applied_revision = applied_revision
        self.segments: list[RecoveredSegment] = []

    @property
    def last(self) -> RecoveredSegment:
        return self.segments[-1]

    def entries(self) -> Iterator[bytes]:
        """Every entry, oldest first. Segments that lost something are refused with their name and the cure."""
        paths = sorted(self._folder.glob("*.segment"))
        if not paths and self._applied_revision:
            raise StoreCorrupt(f"{self._folder}: the journal is missing; restore a backup")
        for path, successor in zip(paths, [*paths[1:], None], strict=False):
            self._add(RecoveredSegment(path))
            yield from self.last.entries(successor)
        if self.segments and 0 < self.last.revision < self._applied_revision:
            raise StoreCorrupt(
                f"{self.last.path}: the journal ends at revision {self.last.revision}, the store knows revision "
                f"{self._applied_revision}; restore a backup"
            )

    def _add(self, found: RecoveredSegment) -> None:
        base_revision = found.header.base_revision
        if not self.segments:
            if base_revision > self._applied_revision:
                raise StoreCorrupt(
                    f"{self._folder}: the journal begins after revision {base_revision}, "
                    f"the store ends at {self._applied_revision}; restore a backup"
                )
        elif base_revision != self.last.revision:
            raise StoreCorrupt(
                f"{self.last.path}: the journal segment ends at revision {self.last.revision}, the next one, "
                f"{found.path.name}, begins after revision {base_revision}; restore a backup"
            )
        self.segments.append(found)
