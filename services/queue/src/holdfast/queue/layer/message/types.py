"""The types of the queue as its protocols see them: orders that come in, messages and deliveries that go out."""

from enum import Enum
from typing import NamedTuple

from holdfast.storage.port import BlobRef

CONTENT_TYPE_DEFAULT = "application/octet-stream"
PRIORITY_MIN, PRIORITY_MAX = (
    -128,
    127,
)  # Each level in use costs one look at the store, so there are not many.
BATCH_MAX = 1000  # Messages of one enqueue_many, one dequeue, one ack_many.


class QueueAddress(NamedTuple):
    """Which queue; both names as they are stored."""

    namespace: str
    queue: str


class EnqueueOrder(NamedTuple):
    """A message on its way in, without its payload. Zero where the queue's own value is meant."""

    address: QueueAddress
    correlation_id: str
    delay_s: float = 0.0
    visibility_s: int = 0
    ttl_s: int = 0
    max_attempts: int = 0
    attributes: bytes = b""  # JSON text of an object; empty: none.
    content_type: str = CONTENT_TYPE_DEFAULT
    priority: int = 0  # The lower number leaves first.
    txn_id: str = ""  # The transaction that sends it; empty: it is in the queue at once.


class Message(NamedTuple):
    """A message as it stands after the commit that is being answered."""

    address: QueueAddress
    message_id: str
    attempts: int
    failure_attempts: int
    max_attempts: int
    priority: int
    enqueued_at_s: int
    not_visible_until_s: int
    visibility_s: int
    expires_at_s: int  # 0: never.
    payload_bytes: int
    content_type: str
    attributes: bytes
    correlation_id: str
    last_error: bytes  # JSON text; empty: none.
    txn_id: str = ""  # The transaction that sends it, while that is not committed.


class Body(NamedTuple):
    """A payload: whole, or in a blob that `QueueService.open_payload` reads."""

    inline: bytes
    blob: BlobRef | None
    size_bytes: int


class StateLease(NamedTuple):
    """The second lease of a stateful delivery, on the key `q/<queue>/state/<message_id>`."""

    etag: str
    lease_id: str
    expires_at_s: int
    fencing_token: int
    txn_id: str


class Delivery(NamedTuple):
    """A message with the lease it was handed out under."""

    message: Message
    body: Body
    lease_id: str
    lease_expires_at_s: int
    fencing_token: int
    txn_id: str
    meta_etag: str
    state: StateLease | None = None


class DequeueOrder(NamedTuple):
    """What a consumer asks for. `wait_s`: None waits for ever, 0 not at all. `visibility_s` 0: the server's own."""

    address: QueueAddress
    owner: str
    wait_s: float | None = 0.0
    visibility_s: int = 0
    count_max: int = 1  # At most so many in one go; for a subscription, so many unresolved ones at a time.
    txn_id: str = ""
    with_state: bool = False


class StateClaim(NamedTuple):
    """What a caller sends of the state lease. An empty etag is no condition."""

    lease_id: str
    fencing_token: int = 0  # 0: not sent.
    etag: str = ""


class LeaseClaim(NamedTuple):
    """What a caller sends to show that a delivery is its own. Empty or zero: not sent."""

    address: QueueAddress
    message_id: str
    lease_id: str
    fencing_token: int = 0
    txn_id: str = ""
    meta_etag: str = ""
    state: StateClaim | None = None


class Acked(NamedTuple):
    """What ack answers."""

    correlation_id: str


class NackIntent(Enum):
    """Whether a nack counts against `max_attempts`."""

    FAILURE = "failure"
    DEFER = "defer"


class NackOrder(NamedTuple):
    """Give a delivery back; `last_error` is JSON text, empty: none."""

    claim: LeaseClaim
    delay_s: float = 0.0
    intent: NackIntent = NackIntent.FAILURE
    last_error: bytes = b""


class Requeued(NamedTuple):
    """What nack answers."""

    meta_etag: str
    correlation_id: str


class ExtendOrder(NamedTuple):
    """Let the lease end `extend_by_s` from now; 0: after the visibility time it has."""

    claim: LeaseClaim
    extend_by_s: int = 0


class Extended(NamedTuple):
    """What extend answers; the state part is 0 when no state lease was named."""

    lease_expires_at_s: int
    visibility_s: int
    meta_etag: str
    state_lease_expires_at_s: int
    correlation_id: str


class Head(NamedTuple):
    """The message that would leave next."""

    message_id: str
    enqueued_at_s: int
    not_visible_until_s: int
    age_s: int


class Stats(NamedTuple):
    """A queue at this moment, as this process sees it."""

    address: QueueAddress
    waiting_consumers: int
    total_consumers: int
    pending_candidates: int  # Messages in the window of this process; a long queue has more.
    in_flight: int
    is_paused: bool
    head: Head | None


class Availability(NamedTuple):
    """What a watch tells whenever it changes."""

    is_available: bool
    head_message_id: str  # Empty: none.
    changed_at_s: int


class DeadLetter(NamedTuple):
    """A message that used up its attempts."""

    message: Message
    body: Body
    dead_at_s: int


class Policy(NamedTuple):
    """What holds for every message of a queue unless it says otherwise. Zero: the server's own, no TTL, no limit."""

    visibility_s: int = 0
    max_attempts: int = 0
    ttl_s: int = 0
    deliveries_per_s: float = 0.0
    is_paused: bool = False
