"""Mutations of a document on the server, staged like an update.

The document is read, changed, and staged if it is still the one that was read; else all of it happens again.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.common.clock import SteadyClock
from holdfast.lql.application import apply
from holdfast.lql.mutation import Mutation, parse_mutations
from holdfast.state.errors import DocumentTooLarge
from holdfast.state.intake import Content
from holdfast.state.service import StateService
from holdfast.state.staging import Expectation, View
from holdfast.storage.errors import TransactionContended
from holdfast.storage.layers import DOCUMENTS
from holdfast.storage.leasing import Claim
from holdfast.storage.resource import Member

ATTEMPTS_MAX = 8
EMPTY = b"{}"


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
        # A document is whole in memory while it is changed, as it was and as it will be: large ones one by one.
        self._large = asyncio.Semaphore(1)

    def parse(self, expressions: Sequence[str]) -> list[Mutation]:
        """Raises InvalidMutations."""
        return parse_mutations(expressions, now_ns=int(self._clock.wall_s() * 1e9))

    async def mutate(
        self,
        member: Member,
        claim: Claim,
        mutations: Sequence[Mutation],
        expectation: Expectation,
        is_hidden: bool | None = None,
    ) -> Mutated:
        for _ in range(ATTEMPTS_MAX):
            seen = await self._state.get_leased(member, claim, expectation)
            if seen.content is not None and seen.content.HasField("blob"):
                async with self._large:
                    mutated = await self._change(member, claim, seen, mutations, is_hidden)
            else:
                mutated = await self._change(member, claim, seen, mutations, is_hidden)
            if mutated is not None:
                return mutated
        raise TransactionContended(DOCUMENTS.key(*member), ATTEMPTS_MAX)

    async def _change(
        self, member: Member, claim: Claim, seen: View, mutations: Sequence[Mutation], is_hidden: bool | None
    ) -> Mutated | None:
        """None: somebody staged something else meanwhile."""
        text = await self._state.read_whole(member, seen)
        changed = self._changed(text or EMPTY, mutations)
        content = await self._state.content_of(member, changed)
        view = await self._state.replace(member, claim, seen, content, is_hidden)
        return None if view is None else Mutated(view, len(text), content)

    def _changed(self, text: bytes, mutations: Sequence[Mutation]) -> bytes:
        changed = apply(text, mutations)
        if len(changed) > self._bytes_max:
            raise DocumentTooLarge(f"the document would be larger than {self._bytes_max} bytes")
        return changed
