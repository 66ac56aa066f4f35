"""What a process lets its queues be, and what holds where nobody says otherwise."""

from typing import NamedTuple


class QueueLimits(NamedTuple):
    """The server's own values; a queue's policy and a message's order go before the defaults."""

    visibility_s_default: int = 30
    visibility_s_max: int = 1800
    max_attempts_default: int = 5
    consumers_max: int = 4096
    out_max: int = 65_536  # Deliveries of one queue that are neither settled nor expired.
    page_entries: int = 128  # Read from the store at once; the window of a queue is a few of them.
