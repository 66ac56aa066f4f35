"""Mutations over a store: here or in a process, staged only over the document that was read."""

import asyncio
import sys

import pytest

from holdfast.common.errors import InvalidBody
from holdfast.lql.errors import InvalidMutations
from holdfast.state.layer.document.mutation import process as mutation_process
from holdfast.state.layer.document.mutation.service import HERE_BYTES_MAX, QUICK_CHARS_MAX
from holdfast.state.layer.document.staging import ANYTHING, Expectation
from holdfast.state.layer.errors import DocumentTooLarge, MutationUnavailable, VersionConflict
from holdfast.txn.layer.port import Member
from tests.infra.document_plane import DOCUMENT_BYTES_MAX, Plane

A = Member("default", "a")
FILLING = b"x" * HERE_BYTES_MAX


def document(n: int, filling: bytes = FILLING) -> bytes:
    return b'{"n":%d,"filling":"%b"}' % (n, filling)


@pytest.mark.parametrize(
    "filling", [b"", b"x" * (HERE_BYTES_MAX - 100), FILLING], ids=["small", "blob", "process"]
)
async def test_a_document_of_any_size_is_changed(everywhere: Plane, filling: bytes) -> None:
    plane = everywhere
    claim = await plane.acquire(A)
    await plane.update(A, claim, document(1, filling))

    mutated = await plane.mutations.mutate(A, claim, await plane.mutations.parse(["/n++"]), ANYTHING)
    await plane.release(A, claim)

    view = await plane.state.get_public(A)
    assert await plane.state.read_whole(A, view) == document(2, filling)
    assert view.etag == mutated.view.etag
    assert mutated.read_bytes == mutated.content.size_bytes == len(document(1, filling))


async def test_mutations_at_the_same_time_are_all_counted(plane: Plane) -> None:
    claim = await plane.acquire(A)
    await plane.update(A, claim, document(0))
    count = await plane.mutations.parse(["/n++"])

    await asyncio.gather(*[plane.mutations.mutate(A, claim, count, ANYTHING) for _ in range(3)])

    view = await plane.state.get_leased(A, claim)
    assert (await plane.state.read_whole(A, view)) == document(3)


async def test_what_a_process_refuses_is_refused_here(plane: Plane) -> None:
    claim = await plane.acquire(A)
    await plane.update(A, claim, document(1))

    with pytest.raises(InvalidBody):
        await plane.mutations.mutate(A, claim, await plane.mutations.parse(["/filling++"]), ANYTHING)
    too_long = await plane.mutations.parse(["/more=" + "y" * DOCUMENT_BYTES_MAX])
    with pytest.raises(DocumentTooLarge):
        await plane.mutations.mutate(A, claim, too_long, ANYTHING)
    with pytest.raises(VersionConflict):
        await plane.mutations.mutate(A, claim, too_long, Expectation(version=7))

    view = await plane.state.get_leased(A, claim)
    assert await plane.state.read_whole(A, view) == document(1)


@pytest.mark.parametrize("program", ["", "import sys; sys.stdin.read(); print('{\"bytes\": 9}')"])
async def test_a_process_that_breaks_off_stages_nothing(
    plane: Plane, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutation_process, "_COMMAND", (sys.executable, "-c", program))
    claim = await plane.acquire(A)
    await plane.update(A, claim, document(1))

    with pytest.raises(MutationUnavailable):
        await plane.mutations.mutate(A, claim, await plane.mutations.parse(["/n++"]), ANYTHING)

    view = await plane.state.get_leased(A, claim)
    assert await plane.state.read_whole(A, view) == document(1)


async def test_a_process_that_takes_too_long_is_ended(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = "import sys; sys.stdin.read(); sys.stdin = open('/dev/zero', 'rb'); [sys.stdin.read(1) for _ in iter(int, 1)]"
    monkeypatch.setattr(mutation_process, "_COMMAND", (sys.executable, "-c", endless))
    monkeypatch.setattr(mutation_process, "TIMEOUT_S", 0.5)
    claim = await plane.acquire(A)
    await plane.update(A, claim, document(1))

    with pytest.raises(MutationUnavailable):
        await plane.mutations.mutate(A, claim, await plane.mutations.parse(["/n++"]), ANYTHING)


async def test_many_expressions_are_applied_like_few(plane: Plane) -> None:
    claim = await plane.acquire(A)
    mutations = await plane.mutations.parse(["/n++"] * QUICK_CHARS_MAX)

    await plane.mutations.mutate(A, claim, mutations, ANYTHING)
    with pytest.raises(InvalidMutations):
        await plane.mutations.parse([*["/n++"] * QUICK_CHARS_MAX, "n"])

    view = await plane.state.get_leased(A, claim)
    assert await plane.state.read_whole(A, view) == b'{"n":%d}' % QUICK_CHARS_MAX
