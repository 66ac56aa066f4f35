"""A batch of keepalives divided between replicas: each renewal goes where the other calls about its key go.

A replica knows the leases that it grants and when they end. A batch that went to any of them would make each replica
watch over the leases of all.
"""

from collections.abc import Sequence

from pydantic_core import from_json, to_json

from holdfast.common.errors import HoldfastError
from holdfast.common.express.message import Answer, Header, json_answer
from holdfast.common.wire_errors import error_members
from holdfast.leases.protocol.schemas import KEEPALIVE_BATCH_MAX


class KeepaliveDivision:
    """A `Division` by renewals."""

    def items(self, body: bytes) -> Sequence[object] | None:
        members = _members(body)
        renewals = members.get("renewals") if members is not None and len(members) == 1 else None
        if not isinstance(renewals, list) or len(renewals) > KEEPALIVE_BATCH_MAX:
            return None
        return renewals

    def body(self, items: Sequence[object]) -> bytes:
        return to_json({"renewals": items})

    def results(self, status: int, body: bytes, count: int) -> Sequence[object] | None:
        """A refusal of the whole batch counts for each of its renewals."""
        members = _members(body)
        if members is None:
            return None
        if status >= 300:
            return [{"status": status, **members}] * count
        results = members.get("results")
        return results if isinstance(results, list) and len(results) == count else None

    def refused(self, error: HoldfastError) -> object:
        return {"status": error.status, **error_members(error)}

    def answer(self, results: Sequence[object], headers: Sequence[Header]) -> Answer:
        renewed = sum(isinstance(result, dict) and "expires_at_unix" in result for result in results)
        return json_answer({"renewed": renewed, "results": results}, headers=headers)


def _members(body: bytes) -> dict[str, object] | None:
    try:
        members: object = from_json(body)
    except ValueError:
        return None
    return members if isinstance(members, dict) else None
