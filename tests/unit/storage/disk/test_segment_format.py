"""The format of a journal segment: what a power cut may leave is read, anything else that is lost is refused."""

import random
import zlib
from collections.abc import Iterator
from pathlib import Path
from struct import Struct

import pytest

from holdfast.storage.disk import segment
from holdfast.storage.disk.segment import SECTOR_BYTES, Seal, SegmentHeader, allocate
from holdfast.storage.disk.store import open_disk
from holdfast.storage.errors import StoreCorrupt
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch

SIZE_BYTES = 64 << 10
OPTIONS = StoreOptions(journal_segment_bytes=256 << 10, free_bytes_min=0)
ZEROS_IN_IT = [bytes(5000), b"a" + bytes(512) + b"b", bytes(511), bytes(512), b"", bytes(256) + b"\x01" * 300]


class Life:
    """One use of a segment file, written as the journal does it."""

    def __init__(self, path: Path, salt: int) -> None:
        self.path = path
        self.header = SegmentHeader(2, salt, 0, SIZE_BYTES)
        self.offset = segment.HEADER_BYTES
        self.revision = 0
        self._write(0, segment.encode_header(self.header))
        self._write(self.header.records_limit, segment.encode_tail(self.header))

    def append(self, entries: list[bytes]) -> bool:
        record = segment.encode_record(self.header.salt, self.revision + 1, entries)
        if self.offset + len(record) > self.header.records_limit:
            return False
        self._write(self.offset, record)
        self.offset += len(record)
        self.revision += 1
        return True

    def tear(self, entries: list[bytes], rng: random.Random) -> None:
        """The write of one more record, of which the device kept any subset of the sectors."""
        record = segment.encode_record(self.header.salt, self.revision + 1, entries)
        at = self.offset
        end = min(self.offset + len(record), self.header.records_limit)
        while at < end:
            border = min(end, (at // SECTOR_BYTES + 1) * SECTOR_BYTES)
            if rng.random() < 0.5:
                self._write(at, record[at - self.offset : border - self.offset])
            at = border

    def read(self) -> list[list[bytes]]:
        header = segment.read_header(self.path)
        return [record.entries for record in segment.read_records(self.path, header)]

    def _write(self, at: int, data: bytes) -> None:
        with self.path.open("r+b") as file:
            file.seek(at)
            file.write(data)


def random_entries(rng: random.Random) -> list[bytes]:
    """Records of all sizes, many with long runs of zeros."""
    count = rng.randint(1, 4)
    return [
        rng.choice([rng.randbytes(rng.randint(0, 900)), bytes(rng.randint(0, 3000))]) for _ in range(count)
    ]


@pytest.mark.parametrize("seed", range(40))
def test_whatever_a_power_cut_keeps_of_the_last_group_is_recovered(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    path = tmp_path / "segment"
    allocate(path, SIZE_BYTES)
    if seed % 2:  # A reused file: what was there before are records, with zeros in them, of an earlier life.
        earlier = Life(path, salt=1)
        while earlier.append(random_entries(rng)):
            pass
    life = Life(path, salt=rng.getrandbits(32))
    wanted = [random_entries(rng) for _ in range(rng.randint(0, 8))]
    for entries in wanted:
        assert life.append(entries)
    torn = random_entries(rng)

    life.tear(torn, rng)

    assert life.read() in (wanted, [*wanted, torn])


@pytest.mark.parametrize("entry", ZEROS_IN_IT, ids=range(len(ZEROS_IN_IT)))
def test_entries_with_zeros_come_back_and_leave_no_sector_of_zeros(tmp_path: Path, entry: bytes) -> None:
    path = tmp_path / "segment"
    allocate(path, SIZE_BYTES)
    life = Life(path, salt=7)
    while life.append([entry, b"x", entry]):
        pass

    assert life.read() == [[entry, b"x", entry]] * life.revision
    assert all(any(sector) for sector in sectors(path))


def sectors(path: Path) -> Iterator[bytes]:
    raw = path.read_bytes()
    return (raw[at : at + SECTOR_BYTES] for at in range(0, len(raw), SECTOR_BYTES))


def test_the_room_that_is_asked_for_is_enough_for_the_record_and_its_mark() -> None:
    for size_bytes in (0, 1, 251, 252, 253, 511, 512, 5000, 100_000):
        record = segment.encode_record(1, 1, [bytes(size_bytes)])

        assert len(record) + segment.RECORD_HEAD_BYTES <= segment.room_for(bytes(size_bytes))


def test_a_seal_is_read_back_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    allocate(path, SIZE_BYTES)
    life = Life(path, salt=7)
    assert segment.read_seal(path, life.header) is None

    life._write(life.header.records_limit, segment.encode_seal(Seal(1000, 12)))
    assert segment.read_seal(path, life.header) == Seal(1000, 12)

    life._write(life.header.records_limit + 10, b"?")
    with pytest.raises(StoreCorrupt, match="seal"):
        segment.read_seal(path, life.header)


def to_old_format(path: Path) -> None:
    """The same segment as versions before this format wrote it: no size, no seal, zeros behind the records."""
    header = segment.read_header(path)
    end = max(record.end_offset for record in segment.read_records(path, header))
    raw = path.read_bytes()
    fields = Struct(">8sQQ").pack(b"HFJSEG01", header.salt, header.base_revision)
    old = (fields + Struct(">I").pack(zlib.crc32(fields))).ljust(segment.HEADER_BYTES, b"\x00")
    path.write_bytes((old + raw[segment.HEADER_BYTES : end]).ljust(len(raw), b"\x00"))


async def test_a_store_in_the_old_format_opens_and_goes_on_in_the_new_one(tmp_path: Path) -> None:
    async with open_disk(tmp_path, OPTIONS) as store:
        for number in range(50):
            await store.commit(Batch(puts={b"k%02d" % number: b"x" * number}))
    (old,) = (tmp_path / "journal").glob("*.segment")
    to_old_format(old)

    for opened in range(3):
        async with open_disk(tmp_path, OPTIONS) as store:
            assert store.revision == 50 + opened
            assert len(await store.range(b"", None, limit=100)) == 50
            await store.commit(Batch(puts={b"k00": b"new"}))

    (new,) = (tmp_path / "journal").glob("*.segment")
    assert segment.read_header(new).version == 2
    assert segment.read_header(new).base_revision == 50
