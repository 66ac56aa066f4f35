"""Answers of several nodes, put together."""

import asyncio
from collections.abc import Sequence
from typing import Any

from holdfast.leases.layer.locks.nodes.link import NodeLink
from holdfast.leases.layer.locks.records import Outcome, Pending, Tell


class Gathering(Pending):
    """Lists of several nodes as one; a node that does not answer is left out."""

    __slots__ = ("_found", "_missing", "_tell")

    def __init__(self, found: Sequence[bytes], tell: Tell) -> None:
        self._found = list(found)
        self._missing = 0
        self._tell = tell

    @property
    def waits(self) -> bool:
        return False

    def begun(self, calls: Sequence[Outcome | Pending]) -> Outcome | Pending:
        """The whole if no other node is asked."""
        self._missing = sum(1 for call in calls if isinstance(call, Pending))
        return self if self._missing else self._found

    def take(self, outcome: Outcome) -> None:
        if isinstance(outcome, list):
            self._found += outcome
        self._missing -= 1
        if not self._missing:
            self._tell(self._found)


async def asked(link: NodeLink, kind: str, *fields: Any) -> Outcome:
    """What a node answers; something that is no list if it does not."""
    answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def take(outcome: Outcome) -> None:
        if not answer.done():
            answer.set_result(outcome)

    found = link.call(kind, *fields, tell=take)
    return await answer if isinstance(found, Pending) else found
