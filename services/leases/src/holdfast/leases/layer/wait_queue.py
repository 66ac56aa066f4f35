"""Who waits for which key, first come, first served. Pure bookkeeping; waiting itself is a future."""

import asyncio
import sys
from collections import deque

from holdfast.txn.layer.port import Member

NEWEST = sys.maxsize  # As a revision: newer than whatever the waiter has seen.


class Ticket:
    """One waiter's place. `turn` is done when it may try: it stands first and the key may be free.

    `called_revision` is the newest revision at which the key may have become free, told since the last try began.
    """

    __slots__ = ("called_revision", "member", "seen_revision", "turn")

    def __init__(self, member: Member) -> None:
        self.member = member
        self.seen_revision = 0
        self.called_revision = 0
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin_try(self) -> None:
        self.called_revision = 0
        self.turn.cancel()


class Lines:
    """All lines. A key without waiters has none, so what nobody waits for costs nothing."""

    def __init__(self) -> None:
        self._lines: dict[Member, deque[Ticket]] = {}
        self.waiters = 0

    def is_waited_for(self, member: Member) -> bool:
        return member in self._lines

    def length(self, member: Member) -> int:
        return len(self._lines.get(member, ()))

    def join(self, member: Member) -> Ticket:
        ticket = Ticket(member)
        self._lines.setdefault(member, deque()).append(ticket)
        self.waiters += 1
        return ticket

    def is_first(self, ticket: Ticket) -> bool:
        return self._lines[ticket.member][0] is ticket

    def leave(self, ticket: Ticket) -> None:
        """Granted, timed out or hung up. If it stood first, the next one's turn has come."""
        line = self._lines[ticket.member]
        was_first = line[0] is ticket
        line.remove(ticket)
        self.waiters -= 1
        if not line:
            del self._lines[ticket.member]
        elif was_first:
            self.call(ticket.member)

    def call(self, member: Member, revision: int = NEWEST) -> None:
        """The key may be free since that revision: let the first one try, unless it has seen a newer holder."""
        line = self._lines.get(member)
        if line is None or line[0].seen_revision >= revision:
            return
        line[0].called_revision = max(line[0].called_revision, revision)
        if not line[0].turn.done():
            line[0].turn.set_result(None)

    def call_firsts(self) -> None:
        """Any key may be free: the first waiter of each line tries."""
        for member in list(self._lines):
            self.call(member)

    def call_all(self) -> None:
        """Everybody has to look: waiting has no sense any more."""
        for line in self._lines.values():
            for ticket in line:
                if not ticket.turn.done():
                    ticket.turn.set_result(None)

    def wait_again(self, ticket: Ticket, seen_revision: int) -> None:
        """It tried and the key was not free as of this revision; if it was called for a newer one meanwhile, it tries
        again at once."""
        ticket.seen_revision = seen_revision
        ticket.turn = asyncio.get_running_loop().create_future()
        if ticket.called_revision > seen_revision:
            ticket.turn.set_result(None)
