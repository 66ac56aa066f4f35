"""A lease as its holder knows it: identity, and the version and ETag that the next write builds on."""

import math
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Final

from holdfast.client.errors import InvalidArgument
from holdfast.client.wire.call import Answer

_ROUNDING_S: Final = 2.0
TTL_S_DEFAULT: Final = 30.0
"""What a server grants when nothing is asked."""


@dataclass(slots=True)
class Lease:
    """Everything that lease-bound calls send. `version` and `etag` follow each answer of the server."""

    key: str
    lease_id: str
    txn_id: str
    fencing_token: int
    namespace: str = "default"
    owner: str = ""
    version: int = 0
    etag: str = ""
    expires_at_unix: int = 0
    correlation_id: str = ""
    raw: dict[str, object] = field(default_factory=dict[str, object], repr=False)
    """The members of the answer that granted it."""

    @classmethod
    def granted(cls, answer: Answer) -> "Lease":
        members = answer.members()
        token = members.number("fencing_token", is_required=True)
        return cls(
            key=members.text("key", is_required=True),
            lease_id=members.text("lease_id", is_required=True),
            txn_id=members.text("txn_id", is_required=True),
            fencing_token=token,
            namespace=members.text("namespace", is_required=True),
            owner=members.text("owner"),
            version=members.number("version"),
            etag=members.text("state_etag"),
            expires_at_unix=members.number("expires_at_unix", is_required=True),
            correlation_id=members.text("correlation_id") or answer.headers.get("x-correlation-id", ""),
            raw=dict(members.raw),
        )

    def headers(self) -> dict[str, str]:
        """What proves the lease."""
        proof = {
            "X-Lease-ID": self.lease_id,
            "X-Txn-ID": self.txn_id,
            "X-Fencing-Token": str(self.fencing_token),
        }
        if self.correlation_id:
            proof["X-Correlation-Id"] = self.correlation_id
        return proof

    def follow_token(self, answer: Answer) -> None:
        """The token in an answer replaces the known one."""
        token = answer.fencing_token
        if token:
            self.fencing_token = token


def granted_s(answer: Answer, expires_at_unix: int, asked_s: float) -> float:
    """How long a lease lasts: what was asked, unless the server's own clock says that it cut it.

    The difference to *our* clock would say nothing: the two need not agree.
    """
    asked_s = asked_s if asked_s > 0 else TTL_S_DEFAULT
    server_now_s = _date_s(answer.headers.get("date", ""))
    if server_now_s is None:
        return asked_s
    shown_s = expires_at_unix - server_now_s
    # Both are whole seconds, so that a second more or less says nothing.
    return asked_s if shown_s > asked_s - _ROUNDING_S else max(1.0, shown_s)


@lru_cache(maxsize=16)
def _date_s(text: str) -> float | None:
    """Unix seconds of a date header. A batch of renewals asks for the same one hundreds of times."""
    try:
        return parsedate_to_datetime(text).timestamp()
    except ValueError:
        return None


def whole_seconds(seconds: float) -> int:
    """Durations go over the wire in whole seconds, rounded up."""
    if not math.isfinite(seconds):
        raise InvalidArgument("a duration must be a finite number of seconds")
    return math.ceil(seconds)
