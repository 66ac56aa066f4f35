"""One call of a process of the plane to another about a transaction: JSON out, JSON or the other side's refusal in."""

from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json, to_json

from holdfast.common.errors import HoldfastError
from holdfast.common.upstream.port import Upstream

ANSWER_BYTES_MAX = 1 << 20


class Forwarded(HoldfastError):
    """Another process of the plane refused; the client is told what it said."""

    code, status = "upstream_failed", 502

    def __init__(self, status: int, members: dict[str, Any]) -> None:
        code, detail = members.get("error"), members.get("detail")
        retry_after_s = members.get("retry_after_seconds")
        super().__init__(
            detail if isinstance(detail, str) else f"the other service answered {status}",
            retry_after_s=retry_after_s if isinstance(retry_after_s, int) else None,
        )
        leader_endpoint = members.get("leader_endpoint")
        self._leader_endpoint = leader_endpoint if isinstance(leader_endpoint, str) else ""
        if isinstance(code, str):
            # What stands for all errors of a class is this one's own here.
            self.__dict__.update(code=code, status=status)

    def fields(self) -> Mapping[str, str | int]:
        return {"leader_endpoint": self._leader_endpoint}


async def call_internal(
    upstream: Upstream, path: str, members: dict[str, object], *, deadline_s: float, affinity: bytes = b""
) -> dict[str, Any]:
    """What the other side answered. Every one of these calls may be repeated."""
    answer = await upstream.call(
        "POST",
        path,
        ((b"content-type", b"application/json"),),
        to_json(members),
        deadline_s=deadline_s,
        affinity=affinity,
        is_repeatable=True,
    )
    body = answer.body
    if answer.stream is not None:
        body = b""
        async for chunk in answer.stream:
            body += chunk
            if len(body) > ANSWER_BYTES_MAX:
                await answer.stream.aclose()
                break
    told = _members(body)
    if answer.status != 200:
        raise Forwarded(answer.status, told)
    return told


def _members(body: bytes) -> dict[str, Any]:
    try:
        members = from_json(body)
    except ValueError:
        return {}
    return members if isinstance(members, dict) else {}
