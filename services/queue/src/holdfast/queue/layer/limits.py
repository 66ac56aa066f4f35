"""The limits of the queues of a process, and the defaults of their messages."""

import math
from typing import NamedTuple

from holdfast.common.settings import PlaneSettings
from holdfast.storage.port import RANGE_LIMIT_MAX


class QueueLimits(NamedTuple):
    """The server's own values; a queue's policy and a message's order go before the defaults."""

    visibility_s_default: int = 30
    visibility_s_max: int = 1800
    max_attempts_default: int = 5
    consumers_max: int = 4096
    out_max: int = 65_536  # Deliveries of one queue that are neither resolved nor expired.
    sent_bytes_max: int = 1 << 30  # Of the payloads that one transaction sends.
    page_entries: int = 128  # Read from the store at once; the window of a queue is a few of them.


def limits_of(settings: PlaneSettings) -> QueueLimits:
    return QueueLimits(
        visibility_s_default=math.ceil(settings.ttl_s_default),
        visibility_s_max=math.ceil(settings.ttl_s_max),
        consumers_max=settings.queue_consumers_max,
        page_entries=min(settings.queue_list_page_size, RANGE_LIMIT_MAX),
    )
