"""The names of queue keys: what a key means, its one stored spelling, and the spelling of who asks.

/queue/{queue}                                      the queue; its value is the node that dispatches
/queue/{queue}/config                               its settings
/queue/{queue}/producer/{client}/{name}             a message that comes in
/queue/{queue}/{idx}/{name}                         a message in its place
/queue/{queue}/consumer/{client}/                   a consumer
/queue/{queue}/consumer/{client}/{idx}/{name}       a delivery
"""

from enum import Enum
from typing import Final, NamedTuple

from holdfast.state.layer.kv.operation import UNBOUNDED

IDX_DIGITS: Final = 20
ROOT: Final = b"/queue/"
_SHORT_ROOT: Final = b"/q/"
_PRODUCER: Final = frozenset((b"producer", b"p", b"input", b"i"))
_CONSUMER: Final = frozenset((b"consumer", b"c"))
_SHORT: Final = {b"producer": b"p", b"consumer": b"c"}


class Kind(Enum):
    QUEUE = "queue"
    CONFIG = "config"
    INCOMING = "incoming"
    MESSAGE = "message"
    CONSUMER = "consumer"
    DELIVERY = "delivery"
    NAMELESS = "nameless"
    """The key of a message or a consumer without its name, or without the name of its client."""


class QueueKey(NamedTuple):
    """A key that belongs to a queue. `name` is what its message is called by its producer."""

    kind: Kind
    queue: bytes
    client: bytes = b""
    idx: int = 0
    name: bytes = b""


class Spelling(NamedTuple):
    """The words that a request uses for the root and for the third part of queue keys."""

    root: bytes
    third: bytes
    """What the request has of it: a whole word, the beginning of one, or nothing."""
    third_means: bytes


LONG: Final = Spelling(b"queue", b"", b"")


def is_queue_key(key: bytes) -> bool:
    """Whether a key may belong to a queue, in any spelling: most do not, and are done with."""
    return key.startswith(b"/q") and (key.startswith(ROOT) or key.startswith(_SHORT_ROOT))


def parsed(key: bytes) -> QueueKey | None:
    """What a key in its stored spelling means; None: it is a plain key."""
    if not key.startswith(ROOT):
        return None
    queue, slash, rest = key[len(ROOT) :].partition(b"/")
    if not queue:
        return None
    if not slash:
        return QueueKey(Kind.QUEUE, queue)
    third, slash, rest = rest.partition(b"/")
    if third == b"config":
        return QueueKey(Kind.CONFIG, queue)
    if third.isdigit():
        return QueueKey(Kind.MESSAGE, queue, idx=int(third[-IDX_DIGITS:]), name=rest)
    if third == b"producer":
        client, slash, name = rest.partition(b"/")
        if not slash:
            client, name = b"", client
        is_named = bool(name) and not rest.startswith(b"/")
        return QueueKey(Kind.INCOMING if is_named else Kind.NAMELESS, queue, client, name=name)
    if third == b"consumer":
        return _of_consumer(queue, rest)
    return None


def _of_consumer(queue: bytes, rest: bytes) -> QueueKey:
    client, _, rest = rest.partition(b"/")
    if not client:
        return QueueKey(Kind.NAMELESS, queue)
    if not rest:
        return QueueKey(Kind.CONSUMER, queue, client)
    idx, _, name = rest.partition(b"/")
    return QueueKey(Kind.DELIVERY, queue, client, int(idx[-IDX_DIGITS:]) if idx.isdigit() else 0, name)


def spelling_of(key: bytes) -> Spelling:
    """The words of a key or of the beginning of one."""
    if not is_queue_key(key):
        return LONG
    parts = key.split(b"/", 4)
    third = parts[3] if len(parts) > 3 else b""
    return Spelling(parts[1], third, _meaning(third))


def _meaning(third: bytes) -> bytes:
    if third in _PRODUCER:
        return b"producer"
    return b"consumer" if third in _CONSUMER else third


def stored(key: bytes) -> bytes:
    """A key, or the beginning of one, in the spelling that is stored."""
    if not is_queue_key(key):
        return key
    parts = key.split(b"/", 4)
    parts[1] = b"queue"
    if len(parts) > 3 and parts[2]:
        parts[3] = _meaning(parts[3])
    return b"/".join(parts)


def stored_key(key: bytes) -> bytes:
    """The same of a whole key: a consumer is written with a slash at its end."""
    found = stored(key)
    if found.endswith(b"/"):
        return found
    of = parsed(found)
    return found + b"/" if of is not None and of.kind is Kind.CONSUMER else found


def stored_range(key: bytes, range_end: bytes) -> tuple[bytes, bytes]:
    """The ends of a range in the spelling that is stored; what means all keys with a prefix goes on meaning that."""
    if not range_end:
        return stored_key(key), range_end
    if not is_queue_key(key) and not is_queue_key(range_end):
        return key, range_end
    if range_end == prefix_end(key):
        prefix = stored(key)
        return prefix, prefix_end(prefix)
    return stored(key), range_end if range_end == UNBOUNDED else stored(range_end)


def prefix_end(prefix: bytes) -> bytes:
    """The end of the range of all keys with this prefix."""
    cut = prefix.rstrip(b"\xff")
    return cut[:-1] + bytes((cut[-1] + 1,)) if cut else UNBOUNDED


def spelled(key: bytes, spelling: Spelling) -> bytes:
    """A stored key in somebody's words."""
    if not key.startswith(ROOT) or spelling == LONG:
        return key
    parts = key.split(b"/", 4)
    parts[1] = spelling.root
    if len(parts) > 3 and parts[2]:
        third = parts[3]
        if spelling.third and third == spelling.third_means:
            parts[3] = spelling.third
        elif spelling.root == b"q" and not (spelling.third and third.startswith(spelling.third)):
            parts[3] = _SHORT.get(third, third)
    return b"/".join(parts)


def queue_key(queue: bytes) -> bytes:
    return ROOT + queue


def config_key(queue: bytes) -> bytes:
    return b"%b%b/config" % (ROOT, queue)


def message_key(queue: bytes, idx: int, name: bytes) -> bytes:
    return b"%b%b/%020d/%b" % (ROOT, queue, idx, name)


def consumer_key(queue: bytes, client: bytes) -> bytes:
    return b"%b%b/consumer/%b/" % (ROOT, queue, client)


def delivery_key(queue: bytes, client: bytes, idx: int, name: bytes) -> bytes:
    return b"%b%b/consumer/%b/%020d/%b" % (ROOT, queue, client, idx, name)


def node_key(node_id: int) -> bytes:
    """There as long as the node lives: it has a lease."""
    return b"/holdfast/nodes/%d" % node_id
