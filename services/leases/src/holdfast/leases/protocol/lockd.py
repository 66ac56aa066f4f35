"""HTTP in, service call, HTTP out: acquire, keepalive, release, describe."""

import math
import re
from functools import partial
from time import perf_counter

from holdfast.common.errors import Draining, HoldfastError, InvalidBody
from holdfast.common.express.execution import validated
from holdfast.common.express.message import Answer, Request, json_answer, json_with_lines
from holdfast.common.express.router import ExpressRouter
from holdfast.common.express.traits import ALL_METHODS, Admission, Begins, Duration, Group
from holdfast.common.express.undo import Repeat
from holdfast.common.fields import (
    InvalidFencingToken,
    InvalidKey,
    InvalidNamespace,
    MissingFencingToken,
    MissingKey,
    MissingLease,
    fencing_token,
    key_of,
    namespace_of,
    owner_of,
    spelled_key,
    stored_key,
)
from holdfast.common.ids import is_xid, uuid7
from holdfast.common.role import Role
from holdfast.common.serving.drain import Drain
from holdfast.common.settings import PlaneSettings
from holdfast.common.telemetry.metrics import OK
from holdfast.common.wire_errors import error_members
from holdfast.leases.layer.errors import (
    AlreadyExists,
    FencingMismatch,
    InvalidTxn,
    KeepaliveUnsupported,
    LeaseExpired,
    LeaseRequired,
    MissingOwner,
    MissingTxn,
    TooManyRenewals,
    TooManyWaiters,
    TxnMismatch,
    Waiting,
)
from holdfast.leases.layer.grant import AcquireParams, Claim, Renewal
from holdfast.leases.layer.keepalive_batch import Outcome
from holdfast.leases.layer.rules import current_of
from holdfast.leases.layer.service import LeaseService
from holdfast.leases.metrics import LeaseMetrics
from holdfast.leases.protocol.keepalive_division import KeepaliveDivision
from holdfast.leases.protocol.schemas import (
    AcquireAnswer,
    AcquireRequest,
    BatchedKeepalive,
    DescribeAnswer,
    KeepaliveAnswer,
    KeepaliveBatchAnswer,
    KeepaliveBatchRequest,
    KeepaliveRequest,
    ReleaseAnswer,
    ReleaseRequest,
    batched_keepalives,
)
from holdfast.leases.protocol.withdrawal import UNDO_ACQUIRE
from holdfast.txn.layer.port import Decision, Member, TooManyParticipants

_QUEUE_STATE_KEY = re.compile(r"q/.+/state/[^/]+")
_TOKEN = {"X-Fencing-Token": "The fencing token of the lease."}
_BAD_CLAIM = (
    InvalidNamespace,
    InvalidKey,
    MissingKey,
    MissingLease,
    MissingTxn,
    MissingFencingToken,
    InvalidFencingToken,
)
_NO_LEASE = (LeaseRequired, LeaseExpired, FencingMismatch, TxnMismatch)
_HELD = Admission(Group.LOCK)


class LeaseRoutes:
    """The endpoints of leases. `service` is set while the store is open."""

    service: LeaseService

    def __init__(self, settings: PlaneSettings, drain: Drain, metrics: LeaseMetrics) -> None:
        self._namespace_default = settings.namespace_default
        self._ttl_s_default = math.ceil(settings.ttl_s_default)
        self._ttl_s_max = math.ceil(settings.ttl_s_max)
        self._acquire_block_s = settings.acquire_block_s
        self._drain = drain
        drain.at_begin(self._send_waiters_away)
        self._metrics = metrics
        self.router = self._declare()

    def _declare(self) -> ExpressRouter:
        router = ExpressRouter(tags=("leases",), service=Role.LEASES, affinity="key")
        router.add(
            "/v1/acquire",
            self.acquire,
            request_model=AcquireRequest,
            response_model=AcquireAnswer,
            errors=(
                InvalidNamespace,
                InvalidKey,
                MissingOwner,
                InvalidTxn,
                Waiting,
                AlreadyExists,
                TooManyWaiters,
                TooManyParticipants,
            ),
            summary="Take a lease on a key, waiting for it if asked to.",
            request_example={"key": "orders", "owner": "worker-1", "ttl_seconds": 30, "block_seconds": 10},
            request_headers={"X-Txn-ID": "The transaction to join, when the body names none."},
            response_headers={**_TOKEN, "X-Key-Version": "The committed version of the key."},
            body_limit_error=InvalidBody,
            undo=UNDO_ACQUIRE,
            admission=Admission(Group.LOCK, Begins.ALWAYS, _asked_wait_s),
            duration=Duration.WAITING,
        )
        self._keepalive = router.add(
            "/v1/keepalive",
            self.keepalive,
            request_model=KeepaliveRequest,
            response_model=KeepaliveAnswer,
            errors=(*_BAD_CLAIM, *_NO_LEASE, KeepaliveUnsupported),
            summary="Count the time of a lease, and of its whole transaction, from now on.",
            request_example={"key": "orders", "lease_id": "…", "txn_id": "…", "ttl_seconds": 30},
            request_headers={**_TOKEN, "X-Txn-ID": "The transaction of the lease; wins over the body."},
            response_headers=_TOKEN,
            body_limit_error=InvalidBody,
            is_parsed_by_handler=True,
            admission=_HELD,
            repeatable=ALL_METHODS,
        )
        router.add(
            "/v1/keepalive/batch",
            self.keepalive_batch,
            request_model=KeepaliveBatchRequest,
            response_model=KeepaliveBatchAnswer,
            errors=(InvalidBody, TooManyRenewals),
            summary="Renew many leases in few commits; each result stands for itself.",
            request_example={
                "renewals": [
                    {"key": "orders", "lease_id": "…", "txn_id": "…", "fencing_token": 1, "ttl_seconds": 30}
                ]
            },
            body_limit_error=InvalidBody,
            is_parsed_by_handler=True,
            admission=_HELD,
            repeatable=ALL_METHODS,
            divide=KeepaliveDivision(),
        )
        self._release = router.add(
            "/v1/release",
            self.release,
            request_model=ReleaseRequest,
            response_model=ReleaseAnswer,
            errors=(*_BAD_CLAIM, TxnMismatch),
            summary="End a lease: publish what its transaction staged, or throw it away.",
            request_example={"key": "orders", "lease_id": "…", "txn_id": "…", "rollback": False},
            request_headers=_TOKEN,
            body_limit_error=InvalidBody,
            is_parsed_by_handler=True,
            repeat=Repeat(),
            admission=_HELD,
        )
        router.add(
            "/v1/describe",
            self.describe,
            methods=("GET",),
            response_model=DescribeAnswer,
            errors=(InvalidNamespace, InvalidKey, MissingKey),
            summary="Lease and version of a key, as any client may see them.",
            query_parameters={"key": "The key.", "namespace": "Its namespace."},
        )
        return router

    async def acquire(self, request: Request, body: AcquireRequest) -> Answer:
        namespace = namespace_of(body.namespace, self._namespace_default)
        if self._drain.is_draining:
            self._drain.refuse_new_work()
        if not body.owner:
            raise MissingOwner("owner is required")
        owner = owner_of(body.owner, request.principal)
        spelled = spelled_key(body.key or request.query("key") or "", namespace) or uuid7()
        params = AcquireParams(
            Member(namespace, stored_key(spelled)),
            owner,
            self._ttl_s(body.ttl_seconds),
            self._wait_s(body.block_seconds or 0),
            _joined_txn(body.txn_id or request.header(b"x-txn-id") or ""),
            bool(body.if_not_exists),
        )
        request.operation = self._metrics.acquire, namespace, perf_counter()
        try:
            grant = await self.service.acquire(params)
        except Draining:
            self._drain.refuse_new_work()
            raise
        answer: dict[str, object] = {
            "namespace": namespace,
            "lease_id": grant.lease_id,
            "txn_id": grant.txn_id,
            "key": spelled,
            "owner": owner,
            "expires_at_unix": grant.expires_at_unix,
            "version": grant.current.version,
            "state_etag": grant.current.etag or None,
            "fencing_token": grant.fencing_token,
            "correlation_id": request.correlation_id,
        }
        lines = b"x-fencing-token: %d\r\nx-key-version: %d\r\n" % (grant.fencing_token, grant.current.version)
        return json_with_lines(answer, lines, partial(self.service.give_back, params.member, grant))

    def _send_waiters_away(self) -> None:
        if hasattr(self, "service"):  # The gateway of a split plane only declares these routes.
            self.service.send_waiters_away()

    async def keepalive(self, request: Request, body: None) -> Answer:
        token = fencing_token(request)
        parsed = validated(self._keepalive, request.body)
        assert isinstance(parsed, KeepaliveRequest)
        member = self._member(request, parsed)
        renewal = self._renewal(member, parsed, token, request.header(b"x-txn-id") or parsed.txn_id)
        request.operation = self._metrics.keepalive, member.namespace, perf_counter()
        expires_at_unix = await self.service.keepalive(*renewal)
        return json_with_lines({"expires_at_unix": expires_at_unix}, b"x-fencing-token: %d\r\n" % token)

    async def keepalive_batch(self, request: Request, body: None) -> Answer:
        began_s = perf_counter()
        asked = [self._batched(one) for one in batched_keepalives(request.body)]
        renewals = [one for one in asked if isinstance(one, Renewal)]
        outcomes = iter(await self.service.keepalive_many(renewals))
        results: list[dict[str, object]] = []
        renewed = 0
        took_s = perf_counter() - began_s
        for one in asked:
            if isinstance(one, HoldfastError):
                results.append(_refused(one))
                continue
            outcome = next(outcomes)
            renewed += isinstance(outcome, int)
            results.append(_result(one, outcome))
            result = OK if isinstance(outcome, int) else outcome.code
            self._metrics.keepalive.count(one.member.namespace, result, took_s)
        return json_answer({"renewed": renewed, "results": results})

    def _batched(self, asked: BatchedKeepalive | InvalidBody) -> Renewal | HoldfastError:
        """What `/v1/keepalive` refuses before it looks at the lease, it refuses here for one of many."""
        if isinstance(asked, InvalidBody):
            return asked
        try:
            if asked.fencing_token is None:
                raise MissingFencingToken("fencing_token is required")
            namespace = namespace_of(asked.namespace, self._namespace_default)
            member = Member(namespace, key_of(asked.key))
            return self._renewal(member, asked, asked.fencing_token, asked.txn_id)
        except HoldfastError as error:
            return error

    def _renewal(self, member: Member, asked: KeepaliveRequest, token: int, txn_id: str | None) -> Renewal:
        if not asked.lease_id:
            raise MissingLease("lease_id is required")
        if _QUEUE_STATE_KEY.fullmatch(member.key):
            raise KeepaliveUnsupported("the state of a queue message lives with its message; extend that")
        claim = Claim(asked.lease_id, token, txn_id or "")
        return Renewal(member, claim, self._ttl_s(asked.ttl_seconds))

    async def release(self, request: Request, body: None) -> Answer:
        token = fencing_token(request)
        parsed = validated(self._release, request.body)
        assert isinstance(parsed, ReleaseRequest)
        member = self._member(request, parsed)
        if not parsed.lease_id:
            raise MissingLease("lease_id is required")
        if not parsed.txn_id:
            raise MissingTxn("transaction id required")
        decision = Decision.ROLLBACK if parsed.rollback else Decision.COMMIT
        request.operation = self._metrics.release, member.namespace, perf_counter()
        await self.service.release(member, Claim(parsed.lease_id, token, parsed.txn_id), decision)
        return json_answer({"released": True})

    async def describe(self, request: Request, body: None) -> Answer:
        spelled = request.query("key") or ""
        if not spelled.strip():
            raise MissingKey("key is required")
        namespace = namespace_of(request.query("namespace"), self._namespace_default)
        description = await self.service.describe(Member(namespace, key_of(spelled)))
        lease, document = description.lease, description.document
        current = current_of(document)
        answer = {
            "namespace": namespace,
            "key": spelled,
            "owner": lease.owner if lease else None,
            "lease_id": lease.lease_id if lease else None,
            "expires_at_unix": description.expires_at_unix or None,
            "version": current.version,
            "state_etag": current.etag or None,
            "updated_at_unix": description.updated_at_s or None,
            "metadata": {"query_hidden": True} if document is not None and document.is_hidden else {},
        }
        return json_answer(answer)

    def _member(self, request: Request, body: KeepaliveRequest | ReleaseRequest) -> Member:
        namespace = namespace_of(body.namespace or request.query("namespace"), self._namespace_default)
        return Member(namespace, key_of(body.key or request.query("key")))

    def _ttl_s(self, asked_s: int | None) -> int:
        return min(asked_s, self._ttl_s_max) if asked_s and asked_s > 0 else self._ttl_s_default

    def _wait_s(self, asked_s: int) -> float | None:
        if asked_s == 0:
            return None
        if asked_s > 0:
            return asked_s
        return 0 if asked_s == -1 else max(self._acquire_block_s, 0)


def _asked_wait_s(request: Request) -> int | None:
    return AcquireRequest.model_validate_json(request.body).block_seconds


def _joined_txn(text: str) -> str:
    if text and not is_xid(text):
        raise InvalidTxn("txn_id is no transaction id: send one that an acquire answered")
    return text


def _result(renewal: Renewal, outcome: Outcome) -> dict[str, object]:
    if isinstance(outcome, int):
        return {"expires_at_unix": outcome, "fencing_token": renewal.claim.fencing_token}
    return _refused(outcome)


def _refused(error: HoldfastError) -> dict[str, object]:
    return {"status": error.status, **error_members(error)}
