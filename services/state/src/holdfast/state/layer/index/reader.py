"""Reads the index along a plan: keys that may match, in their order, starting from the rarest term.

Keys come in batches. A batch is read at one moment and covers all keys from the last one to its own end, so a document
that matches all the time is in exactly one of them, however it changes meanwhile.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from holdfast.state.layer.index.plan import AllOf, AnyOf, Plan, Postings, Span
from holdfast.state.layer.index.terms import PARTIAL
from holdfast.state.layer.index.writer import IndexStates, index_key, index_prefix
from holdfast.state.layer.records_pb2 import IndexState
from holdfast.storage.errors import TransactionContended
from holdfast.storage.keys import next_key
from holdfast.storage.port import RANGE_LIMIT_MAX, Store, View

# Entries that are not in the order of keys have to be read all at once; more than this is as slow as a scan.
SPAN_ENTRIES_MAX: Final = RANGE_LIMIT_MAX
PARTS_MAX: Final = 128
_PROBES: Final = (16, 256, SPAN_ENTRIES_MAX)
_ATTEMPTS_MAX: Final = 4
_END: Final = b"\xff"


class Sources(NamedTuple):
    """What is read: every matching document is in one of the first two, and in all `filters`."""

    postings: tuple[Postings, ...]
    spans: tuple[Span, ...]
    filters: tuple[Postings, ...] = ()

    def narrowed(self, others: Sequence[Plan]) -> "Sources":
        """As one part of a conjunction: what is in it need not match."""
        return Sources(
            tuple(replace(part, is_exact=False) for part in self.postings),
            tuple(replace(part, is_exact=False) for part in self.spans),
            tuple(part for part in others if isinstance(part, Postings)),
        )


class Batch(NamedTuple):
    """Keys in their order, each with whether it surely matches. `end_key` empty: there are no more.

    What the index says of a document is true of every version of it up to `revision`.
    """

    keys: Sequence[tuple[str, bool]]
    end_key: str
    revision: int


class IndexReader:
    """The index of one namespace, read for one query."""

    def __init__(self, store: Store, states: IndexStates, namespace: str) -> None:
        self._store = store
        self._states = states
        self._namespace = namespace
        self._prefix = index_prefix(namespace)

    async def is_empty(self) -> bool:
        return not await self._range(self._prefix, self._prefix + _END, 1)

    async def batches(self, plan: Plan, after_key: str, chunk: int) -> AsyncGenerator[Batch | None, None]:
        """Up to about `chunk` keys at a time. None at the end: the index can't be used from here on."""
        sources = await self._choose(plan, after_key)
        if sources is None:
            yield None
            return
        while True:
            batch = await self._batch(sources, after_key, chunk)
            if batch is not None and sources.filters:
                batch = await self._filtered(batch, sources.filters)
            yield batch
            if batch is None or not batch.end_key:
                return
            after_key = batch.end_key
            await asyncio.sleep(0)  # A local store never waits, and nothing here may match for a long time.

    # -- which terms to start from

    async def _choose(self, plan: Plan, after_key: str) -> Sources | None:
        """None: a scan is as good."""
        if plan is None:
            return None
        if isinstance(plan, Postings):
            return Sources((plan,), ())
        if isinstance(plan, Span):
            is_broad = await self._weight(plan, after_key, SPAN_ENTRIES_MAX) >= SPAN_ENTRIES_MAX
            return None if is_broad else Sources((), (plan,))
        if isinstance(plan, AnyOf):
            return await self._choose_every(plan, after_key)
        return await self._choose_rarest(plan, after_key)

    async def _choose_every(self, plan: AnyOf, after_key: str) -> Sources | None:
        postings: list[Postings] = []
        spans: list[Span] = []
        for part in plan.parts:
            chosen = await self._choose(part, after_key)
            if chosen is None:
                return None
            # What filters one alternative would take matches of the others away.
            postings += chosen.postings
            spans += chosen.spans
            if len(postings) + len(spans) > PARTS_MAX:
                return None
        return Sources(tuple(postings), tuple(spans))

    async def _choose_rarest(self, plan: AllOf, after_key: str) -> Sources | None:
        for most in _PROBES:
            weights = [await self._weight(part, after_key, most) for part in plan.parts]
            least = min(weights)
            if least < most:
                return await self._choose_part(plan, weights.index(least), after_key)
        for number in range(len(plan.parts)):
            chosen = await self._choose_part(plan, number, after_key)
            if chosen is not None:
                return chosen
        return None

    async def _choose_part(self, plan: AllOf, number: int, after_key: str) -> Sources | None:
        chosen = await self._choose(plan.parts[number], after_key)
        others = plan.parts[:number] + plan.parts[number + 1 :]
        return None if chosen is None else chosen.narrowed(others)

    async def _weight(self, plan: Plan, after_key: str, most: int) -> int:
        """How many entries there are to read, as far as it takes to know that they are many."""
        if plan is None:
            return most
        if isinstance(plan, AllOf):
            return min([await self._weight(part, after_key, most) for part in plan.parts])
        if isinstance(plan, AnyOf):
            count = 0
            for part in plan.parts:
                count += await self._weight(part, after_key, most)
                if count >= most:
                    break
            return min(count, most)
        if isinstance(plan, Postings):
            return len(await self._range(*self._postings_range(plan, after_key), most))
        return len(await self._range(self._prefix + plan.start, self._prefix + plan.end, most))

    # -- reading

    async def _batch(self, sources: Sources, after_key: str, chunk: int) -> Batch | None:
        def read(view: View) -> Batch | None:
            return self._read(view, sources, after_key, chunk)

        try:
            return await self._store.view(read, attempts_max=_ATTEMPTS_MAX)
        except TransactionContended:
            return None

    def _read(self, view: View, sources: Sources, after_key: str, chunk: int) -> Batch | None:
        def keys_of(start: bytes, end: bytes, limit: int) -> list[bytes]:
            return [record.key for record in view.range(start, end, limit=limit, expected=True)]

        revision = self._store.revision
        state = self._states.get(view, self._namespace)
        if state.phase != IndexState.READY:
            return None
        found: dict[bytes, bool] = {}
        after, end = after_key.encode(), b""
        for part in (*sources.postings, Postings(PARTIAL, is_exact=False)):
            keys = keys_of(*self._postings_range(part, after_key), chunk)
            head_bytes = len(self._prefix) + len(part.entry) + 1
            names = [key[head_bytes:-1] for key in keys]
            if len(names) == chunk:
                end = min(end, names[-1]) if end else names[-1]
            _note(found, names, part.is_exact)
        for span in sources.spans:
            keys = keys_of(self._prefix + span.start, self._prefix + span.end, SPAN_ENTRIES_MAX)
            if len(keys) == SPAN_ENTRIES_MAX:
                return None  # It has grown since it was chosen.
            # Names of keys are in lower case, so the last A is the one that opens the name.
            _note(found, [key[key.rfind(b"A") + 1 : -1] for key in keys], span.is_exact)
        names = sorted(name for name in found if name > after and (not end or name <= end))
        return Batch([(name.decode(), found[name]) for name in names], end.decode(), revision)

    async def _filtered(self, batch: Batch, filters: Sequence[Postings]) -> Batch:
        """Without the keys that miss one of the other terms. A document that matches all the time has them all the
        time, so this may happen a moment later; one that is not indexed has none of them and stays."""
        keys = [key for key, _ in batch.keys]
        partial = await self._with_entry(PARTIAL, keys)
        for part in filters:
            if not keys:
                break
            found = await self._with_entry(part.entry, keys)
            keys = [key for key in keys if key in found or key in partial]
        return batch._replace(keys=[(key, False) for key in keys])

    async def _with_entry(self, entry: bytes, keys: Sequence[str]) -> set[str]:
        stored = {index_key(self._prefix, entry, key): key for key in keys}
        found = await self._store.get_many(list(stored))
        return {stored[name] for name in found}

    def _postings_range(self, part: Postings, after_key: str) -> tuple[bytes, bytes]:
        head = self._prefix + part.entry
        start = next_key(index_key(self._prefix, part.entry, after_key)) if after_key else head
        return start, head + _END

    async def _range(self, start: bytes, end: bytes, limit: int) -> list[bytes]:
        return [record.key for record in await self._store.range(start, end, limit=limit, keys_only=True)]


def _note(found: dict[bytes, bool], names: Sequence[bytes], is_exact: bool) -> None:
    for name in names:
        found[name] = is_exact or found.get(name, False)
