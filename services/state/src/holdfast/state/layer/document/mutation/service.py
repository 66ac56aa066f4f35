"""Mutations of a document on the server, staged like an update.

The document is read, changed, and staged if it is still the one that was read; else all of it happens again.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import NamedTuple

from holdfast.common.clock import SteadyClock
from holdfast.leases.layer.grant import Claim
from holdfast.lql.mutation.application import apply
from holdfast.lql.mutation.text import Mutation, parse_mutations
from holdfast.state.layer.document.mutation.process import mutated
from holdfast.state.layer.document.service import StateService
from holdfast.state.layer.document.staging import Expectation, View
from holdfast.state.layer.errors import DocumentTooLarge
from holdfast.state.layer.records import DOCUMENTS
from holdfast.storage.errors import TransactionContended
from holdfast.storage.intake import Content
from holdfast.txn.layer.port import Member

ATTEMPTS_MAX = 8
EMPTY = b"{}"
# About 10 ms of work in which no other request is served; starting a process costs more.
HERE_BYTES_MAX = 128 << 10
# Reading and applying many expressions is slower, but a thread does it without holding up the others.
QUICK_CHARS_MAX = 8 << 10


class Mutations(NamedTuple):
    """Expressions that can be read, and what NOW means in them."""

    expressions: tuple[str, ...]
    now_ns: int
    parsed: Sequence[Mutation]

    @property
    def are_quick(self) -> bool:
        return _are_quick(self.expressions)


class Mutated(NamedTuple):
    """What was staged, and what was read for it."""

    view: View
    read_bytes: int
    content: Content


class MutationService:
    """Changes what the holder of a lease sees."""

    def __init__(self, state: StateService, clock: SteadyClock, bytes_max: int) -> None:
        self._state = state
        self._clock = clock
        self._bytes_max = bytes_max
        # What takes long takes its turn: a process needs a few times its document in memory, a thread a core.
        self._large = asyncio.Semaphore(1)

    async def parse(self, expressions: Sequence[str]) -> Mutations:
        """Raises InvalidMutations."""
        now_ns = int(self._clock.now_s() * 1e9)
        if _are_quick(expressions):
            parsed = parse_mutations(expressions, now_ns=now_ns)
        else:
            async with self._large:
                parsed = await asyncio.to_thread(parse_mutations, expressions, now_ns=now_ns)
        return Mutations(tuple(expressions), now_ns, parsed)

    async def mutate(
        self,
        member: Member,
        claim: Claim,
        mutations: Mutations,
        expectation: Expectation,
        is_hidden: bool | None = None,
    ) -> Mutated:
        for _ in range(ATTEMPTS_MAX):
            seen = await self._state.get_leased(member, claim, expectation)
            read_bytes = seen.content.size_bytes if seen.content is not None else 0
            if read_bytes <= HERE_BYTES_MAX:
                content = await self._change_here(member, seen, mutations)
            else:
                async with self._large:
                    content = await self._change_in_process(member, seen, mutations)
            view = await self._state.replace(member, claim, seen, content, is_hidden)
            if view is not None:
                return Mutated(view, read_bytes, content)
        raise TransactionContended(DOCUMENTS.key(*member), ATTEMPTS_MAX)

    async def _change_here(self, member: Member, seen: View, mutations: Mutations) -> Content:
        text = await self._state.read_whole(member, seen)
        if mutations.are_quick:
            changed = apply(text or EMPTY, mutations.parsed)
        else:
            async with self._large:
                changed = await asyncio.to_thread(apply, text or EMPTY, mutations.parsed)
        if len(changed) > self._bytes_max:
            raise DocumentTooLarge(f"the document would be larger than {self._bytes_max} bytes")
        return await self._state.content_of(member, changed)

    async def _change_in_process(self, member: Member, seen: View, mutations: Mutations) -> Content:
        assert seen.content is not None
        document = self._state.open_content(member, seen.content)
        changed = mutated(document, mutations.expressions, now_ns=mutations.now_ns, bytes_max=self._bytes_max)
        async with aclosing(changed):
            return await self._state.take_content(member, changed)


def _are_quick(expressions: Sequence[str]) -> bool:
    return sum(map(len, expressions)) <= QUICK_CHARS_MAX
