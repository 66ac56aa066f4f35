"""Which queue and which delivery a queue command works on: its options, else the environment that dequeue exports."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from holdfast.cli.client.target import SERVER, Target, from_environment, takes
from holdfast.cli.output import failure
from holdfast.client import Message

if TYPE_CHECKING:
    from holdfast.client import AsyncClient, AsyncQueue, Client, Delivery, Queue

PREFIXES: Final = ("HOLDFAST_QUEUE_", "LOCKD_QUEUE_")


def _from(name: str) -> list[str]:
    return [prefix + name for prefix in PREFIXES]


def _option(*flags: str, name: str, help: str) -> Any:
    return Annotated[str, typer.Option(*flags, envvar=_from(name), help=help)]


_QUEUE: dict[str, Any] = {
    **SERVER,
    "namespace": Annotated[
        str,
        typer.Option(
            "--namespace",
            "-n",
            envvar=[*_from("NAMESPACE"), *from_environment("NAMESPACE")],
            help="Default: `default`.",
        ),
    ],
    "queue": _option("--queue", "-q", name="NAME", help="Which queue."),
}
_DELIVERY: dict[str, Any] = {
    "message_id": _option("--message", "--message-id", name="MESSAGE_ID", help="Message id."),
    "lease": _option("--lease", name="LEASE", help="Its lease id."),
    "fencing_token": _option("--fencing-token", name="FENCING_TOKEN", help="Its token."),
    "meta_etag": _option("--meta-etag", name="META_ETAG", help="Its ETag."),
    "txn_id": _option("--txn-id", name="TXN_ID", help="Its transaction."),
    "state_lease": _option("--state-lease", name="STATE_LEASE", help="Lease id of its state."),
    "state_fencing_token": _option("--state-fencing-token", name="STATE_FENCING_TOKEN", help="Its token."),
    "state_etag": _option("--state-etag", name="STATE_ETAG", help="Its ETag."),
    "correlation_id": _option("--correlation-id", name="CORRELATION_ID", help="That of the message."),
}


@dataclass(slots=True, kw_only=True)
class QueueTarget(Target):
    """What the options said."""

    queue: str = ""
    message_id: str = ""
    meta_etag: str = ""
    state_lease: str = ""
    state_fencing_token: str = ""
    state_etag: str = ""
    correlation_id: str = ""

    def required_queue(self) -> str:
        if not self.queue:
            raise failure(f"no queue: give --queue, or set {PREFIXES[0]}NAME")
        return self.queue

    def of(self, client: "Client") -> "Queue":
        return client.queue(self.required_queue(), namespace=self.namespace or None)

    def async_of(self, client: "AsyncClient") -> "AsyncQueue":
        return client.queue(self.required_queue(), namespace=self.namespace or None)

    def delivery(self, client: "Client") -> "Delivery":
        """The message that was taken before, by another process."""
        queue = self.of(client)
        for value, flag, name in (
            (self.message_id, "--message", "MESSAGE_ID"),
            (self.lease, "--lease", "LEASE"),
        ):
            if not value:
                raise failure(f"no message: give {flag}, or set {PREFIXES[0]}{name} as dequeue prints it")
        message = Message(
            queue=queue.name,
            namespace=queue.namespace,
            message_id=self.message_id,
            lease_id=self.lease,
            fencing_token=_token(self.fencing_token, "--fencing-token"),
            meta_etag=self.meta_etag,
            txn_id=self.txn_id,
            state_lease_id=self.state_lease,
            state_fencing_token=_token(self.state_fencing_token, "--state-fencing-token"),
            state_etag=self.state_etag,
            correlation_id=self.correlation_id or client.options.correlation_id,
        )
        return queue.attach(message)


def _token(text: str, flag: str) -> int:
    if not text:
        return 0
    if not text.isascii() or not text.isdigit():
        raise failure(f"{flag}: {text!r} is no number", 2)
    return int(text[:20])


def takes_queue(*, delivery: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate `def command(target: QueueTarget, …)`: it then takes the options that name server, queue, delivery."""
    return takes("target", {**_QUEUE, **(_DELIVERY if delivery else {})}, QueueTarget)
