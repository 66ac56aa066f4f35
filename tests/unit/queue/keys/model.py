"""Queues over keys, as simple as can be: lists and dicts, and no thought of commits, counts or keys."""

from dataclasses import dataclass, field

from holdfast.queue.layer.keys import names


@dataclass
class Message:
    idx: int
    name: bytes
    value: bytes
    client: bytes | None = None
    """Whose delivery it is; None: it waits."""
    due_at_ms: int = 0


@dataclass
class Consumer:
    order: int
    lease: int = 0
    """That a client brought; 0: it has one of the server's."""
    watch: int = 0


@dataclass
class Queue:
    """One that exists."""

    max_in_flight: int
    host: int
    reliability: str = "majority"
    ack_timeout_ms: int = 0
    last_idx: int = 0
    last_order: int = 0
    served_order: int = 0
    messages: dict[int, Message] = field(default_factory=dict)
    consumers: dict[bytes, Consumer] = field(default_factory=dict)

    def open(self, client: bytes) -> int:
        return sum(1 for message in self.messages.values() if message.client == client)

    def put(self, name: bytes, value: bytes) -> int:
        self.last_idx += 1
        self.messages[self.last_idx] = Message(self.last_idx, name, value)
        return self.last_idx

    def register(self, client: bytes, lease: int, watch: int = 0) -> None:
        consumer = self.consumers.get(client)
        if consumer is None:
            self.last_order += 1
            consumer = self.consumers[client] = Consumer(self.last_order)
        consumer.lease, consumer.watch = lease, watch

    def leave(self, client: bytes) -> None:
        del self.consumers[client]
        for message in self.messages.values():
            if message.client == client:
                message.client = None

    def forget(self) -> None:
        self.messages.clear()

    def dispatch(self, now_ms: int) -> None:
        for idx in sorted(self.messages):
            message = self.messages[idx]
            if message.client is not None:
                continue
            free = {
                consumer.order: client
                for client, consumer in self.consumers.items()
                if self.open(client) < self.max_in_flight
            }
            if not free:
                return
            later = [order for order in free if order > self.served_order]
            self.served_order = min(later or free)
            message.client = free[self.served_order]
            message.due_at_ms = now_ms + self.ack_timeout_ms if self.ack_timeout_ms else 0

    def overdue(self, now_ms: int) -> list[tuple[int, int]]:
        """When, and which."""
        return [
            (message.due_at_ms, message.idx)
            for message in self.messages.values()
            if message.client is not None and 0 < message.due_at_ms <= now_ms
        ]

    def keys(self, queue: bytes) -> dict[bytes, bytes]:
        """What the key space has of its messages."""
        found: dict[bytes, bytes] = {}
        for message in self.messages.values():
            found[names.message_key(queue, message.idx, message.name)] = message.value
            if message.client is not None:
                key = names.delivery_key(queue, message.client, message.idx, message.name)
                found[key] = message.value
        return found
