"""The rules of barriers, elections and read-write locks: names of what they use, and what follows from what is seen.

A barrier of N is a semaphore of N slots. A party that arrives takes one. A party that sees N slots without a mark passes: it
marks its slot, by renewing it for another time than waiting parties have, and leaves the rest to the end of that lease. So the
others see that the barrier opened, even those that hear of it late. A mark that is older than the own arrival is of an earlier
meeting. Ages and ends come from one server in one answer, so no two clocks are compared.
"""

from hashlib import sha256
from typing import Final

from holdfast.client.errors import InvalidArgument
from holdfast.client.locks.view import LockView
from holdfast.client.session.lease import whole_seconds

ROUNDS: Final = 8
"""Keys that the rounds of a barrier use in turns."""
LINGER_S: Final = 10
"""How long a late party can see that the barrier opened."""
READERS_MAX_DEFAULT: Final = 16


def channel_of(kind: str, key: str) -> str:
    """A channel of its own for any key: keys may have what channels may not."""
    return f"holdfast.{kind}.{sha256(key.encode()).hexdigest()[:32]}"


def gate_of(key: str) -> str:
    return f"{key}.gate"


def readers_of(key: str) -> str:
    return f"{key}.readers"


def round_of(key: str, number: int) -> str:
    return f"{key}.{number % ROUNDS}"


def waiting_ttl_s(ttl_s: float) -> int:
    """The lease of one that waits at a barrier, as it is sent: never that of one that has passed."""
    if ttl_s < 1:
        raise InvalidArgument("ttl_s of a barrier must be at least 1")
    seconds = whole_seconds(ttl_s)
    return seconds + 1 if seconds == LINGER_S else seconds


def is_open(view: LockView | None, fencing_token: int, parties: int) -> bool | None:
    """Whether one that arrived with this token may pass; None: its slot is gone."""
    holders = () if view is None else view.holders
    mine = next((holder for holder in holders if holder.fencing_token == fencing_token), None)
    if mine is None:
        return None
    marked = [holder for holder in holders if holder.ttl_s == LINGER_S]
    if len(holders) - len(marked) >= parties:
        return True
    return any(LINGER_S - holder.lease_expires_in_s < mine.age_s for holder in marked)
