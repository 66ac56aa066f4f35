"""HTTP in, keeper or election, HTTP out: votes for a leader, and who it is."""

from typing import Final

from holdfast.common.errors import InvalidBody
from holdfast.common.express.message import Answer, Request, json_answer
from holdfast.common.express.router import ExpressRouter
from holdfast.common.express.traits import NO_METHODS
from holdfast.common.role import Role
from holdfast.common.security.principal import Permission
from holdfast.txn.cluster.election.ballot import NODE_ID_CHARS_MAX, TERM_MAX
from holdfast.txn.cluster.election.election import Election
from holdfast.txn.cluster.election.keeper import LeaseKeeper
from holdfast.txn.cluster.election.leader_lease import LeaderLease
from holdfast.txn.cluster.endpoints import plain_endpoint
from holdfast.txn.cluster.errors import (
    InvalidEndpoint,
    InvalidTerm,
    InvalidTtl,
    MissingCandidateEndpoint,
    MissingCandidateId,
    MissingLeaderId,
    TcClientRequired,
    TcForbidden,
    TcLeaseActive,
    TcUnavailable,
)
from holdfast.txn.layer.errors import TcTermStale
from holdfast.txn.protocol.cluster_schemas import (
    AcquireRequest,
    GrantAnswer,
    LeaderAnswer,
    ReleaseAnswer,
    ReleaseRequest,
    RenewAnswer,
    RenewRequest,
    parsed,
)

ANY_METHOD: Final = ("POST", "GET", "PUT", "DELETE", "PATCH")
TTL_MS_MAX: Final = 600_000
_REFUSED = (TcClientRequired, TcForbidden, TcUnavailable)
_NOT_HELD = (InvalidTerm, TcLeaseActive, *_REFUSED)


def coordinator_router() -> ExpressRouter:
    """For endpoints that coordinators call; all methods do the same there, so GET says nothing."""
    return ExpressRouter(
        tags=("coordinators",),
        service=Role.TXN,
        repeatable=NO_METHODS,
        permission=Permission.COORDINATOR_CLIENT,
    )


class TcLeaseRoutes:
    """The endpoints of the election. They answer once there is one."""

    def __init__(self) -> None:
        self._taking_part: tuple[Election, LeaseKeeper] | None = None
        self.router = self._declare()

    def open(self, election: Election, keeper: LeaseKeeper) -> None:
        self._taking_part = election, keeper

    def _declare(self) -> ExpressRouter:
        router = coordinator_router()
        router.add(
            "/v1/tc/lease/acquire",
            self.acquire,
            methods=ANY_METHOD,
            request_model=AcquireRequest,
            is_body_optional=True,
            is_parsed_by_handler=True,
            response_model=GrantAnswer,
            errors=(
                InvalidBody,
                MissingCandidateId,
                MissingCandidateEndpoint,
                InvalidEndpoint,
                InvalidTtl,
                TcTermStale,
                *_NOT_HELD,
            ),
            summary="Ask this node for its vote.",
            request_example={
                "candidate_id": "node-1",
                "candidate_endpoint": "https://a:9341",
                "term": 1,
                "ttl_ms": 15000,
            },
        )
        router.add(
            "/v1/tc/lease/renew",
            self.renew,
            methods=ANY_METHOD,
            request_model=RenewRequest,
            is_body_optional=True,
            is_parsed_by_handler=True,
            response_model=RenewAnswer,
            errors=(InvalidBody, MissingLeaderId, InvalidTtl, *_NOT_HELD),
            summary="Have this node follow the leader it voted for, or go on following it.",
            request_example={"leader_id": "node-1", "term": 1, "ttl_ms": 15000},
        )
        router.add(
            "/v1/tc/lease/release",
            self.release,
            methods=ANY_METHOD,
            request_model=ReleaseRequest,
            is_body_optional=True,
            is_parsed_by_handler=True,
            response_model=ReleaseAnswer,
            errors=(InvalidBody, MissingLeaderId, *_NOT_HELD),
            summary="Give a vote or the lead back.",
            request_example={"leader_id": "node-1", "term": 1},
        )
        router.add(
            "/v1/tc/leader",
            self.leader,
            methods=("GET", *(method for method in ANY_METHOD if method != "GET")),
            response_model=LeaderAnswer,
            errors=_REFUSED,
            summary="Whom this node follows; one that it only voted for is not named.",
        )
        return router

    async def acquire(self, request: Request, body: None) -> Answer:
        _, keeper = self._opened()
        asked = parsed(AcquireRequest, request.body)
        candidate_id = (asked.candidate_id or "").strip()
        if not candidate_id:
            raise MissingCandidateId("candidate_id is required")
        if not (asked.candidate_endpoint or "").strip():
            raise MissingCandidateEndpoint("candidate_endpoint is required")
        term, ttl_ms = _term(asked.term), _ttl_ms(asked.ttl_ms)
        endpoint = _endpoint(asked.candidate_endpoint or "")
        lease = await keeper.acquire(_node_id(candidate_id), endpoint, term=term, ttl_ms=ttl_ms)
        return json_answer({"granted": True, **_named(lease)})

    async def renew(self, request: Request, body: None) -> Answer:
        _, keeper = self._opened()
        asked = parsed(RenewRequest, request.body)
        leader_id = _leader_id(asked.leader_id)
        lease = await keeper.renew(leader_id, term=_term(asked.term), ttl_ms=_ttl_ms(asked.ttl_ms))
        return json_answer({"renewed": True, **_named(lease)})

    async def release(self, request: Request, body: None) -> Answer:
        election, _ = self._opened()
        asked = parsed(ReleaseRequest, request.body)
        await election.released(_leader_id(asked.leader_id), _term(asked.term))
        return json_answer({"released": True})

    async def leader(self, request: Request, body: None) -> Answer:
        election, _ = self._opened()
        lease = election.lease()
        if not lease.is_active(election.now_ms()):
            return json_answer({"term": lease.term or None})
        if not lease.is_observed:
            return json_answer({"term": lease.term, "expires_at": lease.expires_at_ms})
        return json_answer(_named(lease))

    def _opened(self) -> tuple[Election, LeaseKeeper]:
        if self._taking_part is None:
            raise TcUnavailable("this node has no peers: start it with --self to take part in an election")
        return self._taking_part


def _named(lease: LeaderLease) -> dict[str, object]:
    return {
        "leader_id": lease.leader_id,
        "leader_endpoint": lease.endpoint,
        "term": lease.term,
        "expires_at": lease.expires_at_ms,
    }


def _leader_id(text: str | None) -> str:
    leader_id = (text or "").strip()
    if not leader_id:
        raise MissingLeaderId("leader_id is required")
    return _node_id(leader_id)


def _node_id(text: str) -> str:
    if len(text) > NODE_ID_CHARS_MAX:
        raise InvalidBody(f"the id of a node has at most {NODE_ID_CHARS_MAX} characters")
    return text


def _term(term: int | None) -> int:
    if not term or term >= TERM_MAX:
        raise InvalidTerm("term must be a whole number from 1 on, and leave room for the next one")
    return term


def _ttl_ms(ttl_ms: int | None) -> int:
    if not ttl_ms or not 0 < ttl_ms <= TTL_MS_MAX:
        raise InvalidTtl(f"ttl_ms must be between 1 and {TTL_MS_MAX}")
    return ttl_ms


def _endpoint(text: str) -> str:
    try:
        return plain_endpoint(text)
    except ValueError as error:
        raise InvalidEndpoint(f"candidate_endpoint {error}") from error
