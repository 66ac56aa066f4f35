"""Documents of keys that were not used for long go with everything that belongs to them, if they are to go at all."""

from dataclasses import replace

from holdfast.common.clock import FakeClock
from holdfast.common.settings import PlaneSettings
from holdfast.leases.layer.retention import Retention, retention_of
from holdfast.state.layer.index.builder import IndexBuilder
from holdfast.state.layer.namespace import NamespaceService
from holdfast.state.metrics import IndexMetrics
from holdfast.storage.intake import INLINE_BYTES_MAX
from holdfast.txn.layer.port import Member
from tests.conformance.backends import SMALL, Backend
from tests.service.retention.kept_plane import DAY_S, KEYS_ONLY, KeptPlane

A, B = Member("default", "a"), Member("default", "b")
LARGE = b'"' + b"x" * (2 * INLINE_BYTES_MAX) + b'"'


async def test_a_document_goes_with_attachments_index_and_key(plane: KeptPlane) -> None:
    async with IndexBuilder(plane.store, plane.state, IndexMetrics(plane.registry)).running():
        await plane.write(A, b'{"colour":"red"}')
        await plane.attach(A, "small", b"s" * 10)
        await plane.attach(A, "large", LARGE)
        plane.clock.advance(31 * DAY_S)
        await plane.write(B, b'{"colour":"blue"}')

        assert await plane.forget() == 2  # The document, and its key.

    assert await plane.read(A) is None
    assert await plane.read(B) == b'{"colour":"blue"}'
    tables = await plane.tables()
    assert (tables["lease"], tables["doc"]) == (1, 1)
    assert not {"att", "attdata", "stage", "docgone"} & tables.keys()
    freed_bytes = len(b'{"colour":"red"}') + 10 + len(LARGE)
    rendered = plane.registry.render()
    assert b"holdfast_retention_documents_removed_total 1" in rendered
    assert f"holdfast_retention_freed_bytes_total {freed_bytes}".encode() in rendered


async def test_a_removed_document_leaves_no_entry_of_an_index(plane: KeptPlane) -> None:
    await NamespaceService(plane.store).set("default", preferred="index", fallback="none", expected_etag="")
    builder = IndexBuilder(plane.store, plane.state, IndexMetrics(plane.registry))
    await builder.prepare()
    await builder.catch_up()
    before = await plane.tables()
    await plane.write(A, b'{"colour":"red"}')
    await plane.write(B, LARGE)
    await builder.catch_up()
    assert (await plane.tables())["index"] > 0
    plane.clock.advance(31 * DAY_S)

    await plane.forget()

    tables = await plane.tables()
    assert tables["index"] == tables["indexsummary"] == 0
    assert tables["indexinfo"] == before["indexinfo"]


async def test_the_blobs_of_a_removed_document_are_free(plane: KeptPlane) -> None:
    await plane.write(A, LARGE)
    plane.clock.advance(31 * DAY_S)

    await plane.forget()
    plane.clock.advance(120)
    await plane.store.blobs.free(grace_s=120)

    assert [info async for info in plane.store.blobs.list()] == []


async def test_overwriting_a_large_document_again_and_again_takes_the_room_of_two(plane: KeptPlane) -> None:
    for _ in range(10):
        await plane.write(A, LARGE)
        plane.clock.advance(121)
        await plane.store.blobs.free(grace_s=120)
    await plane.remove(A)
    left = [info async for info in plane.store.blobs.list()]

    plane.clock.advance(121)
    await plane.store.blobs.free(grace_s=120)

    assert len(left) <= 2
    assert [info async for info in plane.store.blobs.list()] == []


async def test_a_document_whose_key_was_used_or_is_held_stays(plane: KeptPlane) -> None:
    await plane.write(A, b"{}")
    await plane.write(B, b"{}")
    held = Member("default", "held")
    await plane.write(held, b"{}")
    plane.clock.advance(29 * DAY_S)
    await plane.use(A)
    grant = await plane.acquire(held, ttl_s=int(3 * DAY_S))
    await plane.stage(held, grant, b"1")
    plane.clock.advance(2 * DAY_S)

    assert await plane.forget() == 2

    assert await plane.read(B) is None
    assert await plane.read(A) == await plane.read(held) == b"{}"
    await plane.release(held, grant)
    assert await plane.read(held) == b"1"


async def test_documents_stay_by_default(backend: Backend) -> None:
    clock = FakeClock()
    async with backend.open(replace(SMALL, clock=clock)) as store:
        plane = KeptPlane(store, clock, KEYS_ONLY)
        await plane.write(A, b"{}")
        clock.advance(3650 * DAY_S)

        assert await plane.forget() == 0
        assert await plane.read(A) == b"{}"


async def test_many_documents_go_in_one_pass(plane: KeptPlane) -> None:
    members = [Member("default", f"key-{number:03}") for number in range(300)]
    for member in members:
        await plane.write(member, b"{}")
    plane.clock.advance(31 * DAY_S)

    assert await plane.forget() == 600

    assert await plane.tables() == {"leasefloor": 1, "sys": 3} | _format(await plane.tables())


def _format(tables: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in tables.items() if name == "indexinfo"}


def test_by_default_keys_are_kept_for_a_day_and_documents_for_ever() -> None:
    retention = retention_of(PlaneSettings.isolated())

    assert (retention.key_s, retention.document_s) == (DAY_S, 0)
    assert (retention.pace.interval_s, retention.pace.pause_s) == (3600, 0.1)


def test_by_default_blobs_history_and_decisions_are_kept_as_the_page_says() -> None:
    settings = PlaneSettings.isolated()

    assert (settings.blob_free_grace_s, settings.blob_sweep_grace_s) == (120, 3600)
    assert (settings.history_age_s_max, settings.tc_decision_retention_s) == (600, DAY_S)


def test_the_pause_of_a_walk_is_a_setting() -> None:
    assert retention_of(PlaneSettings.isolated(idle_sweep_operation_delay_s="2s")).pace.pause_s == 2


def test_the_shorter_retention_holds_and_a_key_is_not_kept_longer_than_its_document() -> None:
    def kept(**flags: str) -> tuple[float, float]:
        retention: Retention = retention_of(PlaneSettings.isolated(**flags))
        return retention.key_s, retention.document_s

    assert kept(disk_retention_s="720h") == (DAY_S, 30 * DAY_S)
    assert kept(retention_s="1h", disk_retention_s="2h") == (3600, 3600)
    assert kept(retention_s="1h", retention_keys_s="0s") == (3600, 3600)
    assert kept(retention_keys_s="0s") == (0, 0)


def test_a_run_comes_after_half_the_retention_within_a_minute_and_an_hour() -> None:
    def interval_s(**flags: str) -> float:
        return retention_of(PlaneSettings.isolated(**flags)).pace.interval_s

    assert interval_s(retention_keys_s="10s") == 60
    assert interval_s(retention_s="30m") == 900
    assert interval_s(retention_s="720h") == 3600
    assert interval_s(retention_s="720h", disk_janitor_interval_s="7s") == 7
