"""The metrics of transactions: what was decided, how it reached others, what the sweep did, what is in doubt."""

from typing import Final

from holdfast.common.telemetry.metrics import Registry, Timing
from holdfast.storage.port import Transaction
from holdfast.txn.layer.rules import State

ISLAND: Final = "island"
"""The target of what goes to another store; within one store nothing is sent."""

NO_ENDPOINT: Final = "no_endpoint"
LOOKUP_FAILED: Final = "endpoint_lookup_failed"
ENDPOINT_FAILED: Final = "endpoint_failed"


class TxnMetrics:
    """Counted where it happens; what is in doubt is as of the sweep's last look."""

    def __init__(self, registry: Registry) -> None:
        def timing(name: str, help_text: str) -> Timing:
            return Timing(registry, f"holdfast.txn.{name}", help_text)

        self.decide = timing("decide", "From the call to end a transaction until all members were told.")
        self.fanout = timing("fanout", "One round of a decision to other islands.")
        self.replay = timing("replay", "Replays of what is recorded.")
        self.sweep = timing("sweep", "One look at what is due.")
        self._recorded = registry.counter(
            "holdfast.txn.decisions.recorded", "Decisions that stand, by what was decided.", ("state",)
        )
        self._attempts = registry.counter(
            "holdfast.txn.fanout.attempts",
            "Calls that delivered a decision to other stores, by whom they went to and how they ended.",
            ("target", "result"),
        )
        self._retries = registry.counter(
            "holdfast.txn.fanout.retries", "Those of them that were not the first.", ("target",)
        )
        self._failed = registry.counter(
            "holdfast.txn.fanout.failed",
            "Targets given up for now; the sweep tries them again.",
            ("target", "reason"),
        )
        self._swept = {
            name: registry.counter(f"holdfast.txn.sweep.{name}", help_text).labels()
            for name, help_text in (
                ("applied", "Decisions that the sweep delivered to every participant."),
                ("failed", "Transactions that it could not go on with; they are due again."),
                ("pending_expired", "Transactions that it rolled back because their time was over."),
                ("cleanup_deleted", "Markers of ended transactions that it forgot."),
            )
        }
        self._in_doubt = registry.gauge(
            "holdfast.txn.in_doubt", "Decisions that have not reached all members, at most 1000 are counted."
        ).labels()
        self._in_doubt_age = registry.gauge(
            "holdfast.txn.in_doubt.age_seconds", "Age of the oldest transaction among them.", unit="s"
        ).labels()

    def recorded(self, tx: Transaction, state: State) -> None:
        """The decision stands once this commits."""
        counter = self._recorded.labels(state.value)
        tx.after_commit(lambda _: counter.inc())

    def attempted(self, target: str, *, is_retry: bool, is_ok: bool) -> None:
        self._attempts.labels(target, "ok" if is_ok else "failed").inc()
        if is_retry:
            self._retries.labels(target).inc()

    def gave_up(self, target: str, reason: str = ENDPOINT_FAILED) -> None:
        self._failed.labels(target, reason).inc()

    def swept(self, name: str, count: int = 1) -> None:
        self._swept[name].inc(count)

    def show_in_doubt(self, count: int, oldest_age_s: float) -> None:
        self._in_doubt.set(count)
        self._in_doubt_age.set(oldest_age_s)
