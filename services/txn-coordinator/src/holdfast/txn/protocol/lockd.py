"""HTTP in, service call, HTTP out: decide, commit, rollback, replay, list."""

from collections.abc import Mapping

from holdfast.common.clock import SystemClock
from holdfast.common.errors import InvalidBody
from holdfast.common.express.message import Answer, Request, json_answer
from holdfast.common.express.router import ExpressRouter
from holdfast.common.express.traits import NO_METHODS
from holdfast.common.fields import (
    InvalidKey,
    InvalidNamespace,
    parse_int64,
    spelled_key,
    stored_key,
    stored_namespace,
)
from holdfast.common.ids import is_xid
from holdfast.common.role import Role
from holdfast.common.security.principal import Permission
from holdfast.storage.port import Store
from holdfast.txn.cluster.errors import TcClientRequired, TcForbidden, TcNotLeader, TcUnavailable
from holdfast.txn.cluster.lead import FORWARDED, Lead
from holdfast.txn.cluster.leadership import Leadership, check_term
from holdfast.txn.layer.decisions import Decisions
from holdfast.txn.layer.errors import (
    InvalidBackendHash,
    InvalidState,
    InvalidTxnId,
    MissingTxnId,
    TcTermRequired,
    TcTermStale,
    TxnBackendMismatch,
    TxnConflict,
    TxnFanoutFailed,
    TxnNotFound,
    TxnPending,
)
from holdfast.txn.layer.listing import LIMIT_DEFAULT, LIMIT_MAX, Listed, list_transactions
from holdfast.txn.layer.port import MEMBERS_MAX, Member, TooManyParticipants
from holdfast.txn.layer.rules import Ask, Participant, State
from holdfast.txn.protocol.cluster_schemas import parsed
from holdfast.txn.protocol.schemas import (
    DecideAnswer,
    DecideRequest,
    ListAnswer,
    ParticipantBody,
    ReplayRequest,
)

_ANY_METHOD = ("POST", "GET", "PUT", "DELETE", "PATCH")
_BAD_ID = (MissingTxnId, InvalidTxnId)
_BAD_ASK = (InvalidNamespace, InvalidKey, InvalidBackendHash, TooManyParticipants, TxnBackendMismatch)
_BAD_TERM = (TcTermRequired, TcTermStale, TxnConflict)
_STRANGER = (TcClientRequired, TcForbidden)
_FORWARDED = FORWARDED.lower().encode()
_QUERY: Mapping[str, str] = {"txn_id": "The transaction, when the body names none."}
_EXAMPLE = {"txn_id": "…", "participants": [{"namespace": "default", "key": "orders"}]}


class TxnRoutes:
    """The endpoints of transactions, once the store is open."""

    def __init__(self, leadership: Leadership) -> None:
        self._leadership = leadership
        self._clock = SystemClock()
        self._store: Store
        self._decisions: Decisions
        self._lead: Lead
        self.router = self._declare()

    def open(self, store: Store, decisions: Decisions, lead: Lead) -> None:
        self._store = store
        self._decisions = decisions
        self._lead = lead

    def _declare(self) -> ExpressRouter:
        router = ExpressRouter(
            tags=("transactions",),
            service=Role.TXN,
            affinity="txn_id",
            repeatable=NO_METHODS,  # All methods do the same here, so GET says nothing.
            permission=Permission.COORDINATOR_CLIENT,
        )
        router.add(
            "/v1/txn/decide",
            self.decide,
            methods=_ANY_METHOD,
            request_model=DecideRequest,
            is_body_optional=True,
            is_parsed_by_handler=True,
            response_model=DecideAnswer,
            errors=(
                *(*_STRANGER, *_BAD_ID, InvalidState, *_BAD_ASK, *_BAD_TERM),
                *(TcUnavailable, TcNotLeader, TxnFanoutFailed),
            ),
            summary="Record how a transaction ends, or that it will, and who takes part; apply it everywhere.",
            request_example={**_EXAMPLE, "state": "commit"},
            query_parameters={**_QUERY, "state": "pending, commit or rollback, when the body says none."},
        )
        for state, handler in ((State.COMMIT, self.commit), (State.ROLLBACK, self.roll_back)):
            router.add(
                f"/v1/txn/{state}",
                handler,
                methods=_ANY_METHOD,
                request_model=DecideRequest,
                is_body_optional=True,
                is_parsed_by_handler=True,
                response_model=DecideAnswer,
                errors=(
                    *(*_STRANGER, *_BAD_ID, *_BAD_ASK, *_BAD_TERM),
                    *(TcUnavailable, TxnNotFound, TxnPending, TxnFanoutFailed),
                ),
                summary=f"Apply a {state} on this island; without participants, what is recorded.",
                request_example=_EXAMPLE,
                query_parameters=_QUERY,
            )
        router.add(
            "/v1/txn/replay",
            self.replay,
            methods=_ANY_METHOD,
            request_model=ReplayRequest,
            is_body_optional=True,
            is_parsed_by_handler=True,
            response_model=DecideAnswer,
            errors=(*_STRANGER, *_BAD_ID, TxnNotFound, TcUnavailable, TcNotLeader),
            summary="Apply the recorded decision again; a transaction whose time is over is rolled back.",
            request_example={"txn_id": "…"},
            query_parameters=_QUERY,
        )
        router.add(
            "/v1/txn/list",
            self.list,
            methods=("GET",),
            response_model=ListAnswer,
            summary="The transactions under way: those in doubt first, then by age.",
            query_parameters={"limit": f"At most so many; {LIMIT_DEFAULT} if left out, {LIMIT_MAX} at most."},
        )
        return router

    async def decide(self, request: Request, body: None) -> Answer:
        asked = parsed(DecideRequest, request.body)
        txn_id = _txn_id(asked.txn_id, request)
        state = _state(asked.state or request.query("state") or "")
        self._check_island(asked)
        is_forwarded = request.header(_FORWARDED) is not None
        recorded = await self._lead.decide(txn_id, self._ask(state, asked), is_forwarded=is_forwarded)
        return _answer(txn_id, recorded)

    async def commit(self, request: Request, body: None) -> Answer:
        return await self._apply(request, State.COMMIT)

    async def roll_back(self, request: Request, body: None) -> Answer:
        return await self._apply(request, State.ROLLBACK)

    async def _apply(self, request: Request, state: State) -> Answer:
        asked = parsed(DecideRequest, request.body)
        txn_id = _txn_id(asked.txn_id, request)
        check_term(self._leadership, asked.tc_term or 0)
        self._check_island(asked)
        if not asked.participants:
            return _answer(txn_id, await self._decisions.apply(txn_id))
        return _answer(txn_id, await self._decisions.decide(txn_id, self._ask(state, asked)))

    async def replay(self, request: Request, body: None) -> Answer:
        txn_id = _txn_id(parsed(ReplayRequest, request.body).txn_id, request)
        return _answer(txn_id, await self._lead.replay(txn_id))

    async def list(self, request: Request, body: None) -> Answer:
        asked = request.query("limit") or str(LIMIT_DEFAULT)
        limit = parse_int64(asked)
        if limit is None or limit < 1:
            raise InvalidBody("limit is a number from 1 on")
        listed, is_more = await list_transactions(self._store, self._clock, min(limit, LIMIT_MAX))
        return json_answer({"transactions": [_shown(one) for one in listed], "truncated": is_more or None})

    def _check_island(self, body: DecideRequest) -> None:
        target = (body.target_backend_hash or "").strip()
        if target and target != self._decisions.backend_hash:
            raise TxnBackendMismatch("this is another island than the one the decision is meant for")

    def _ask(self, state: State, body: DecideRequest) -> Ask:
        bodies = body.participants or []
        if len(bodies) > MEMBERS_MAX:
            raise TooManyParticipants(f"a transaction has at most {MEMBERS_MAX} participants")
        participants = [_participant(one) for one in bodies]
        # Seconds of the far future would overflow; nothing lives that long.
        expires_at_ms = max(0, min(body.expires_at_unix or 0, 1 << 40)) * 1000
        return Ask(state, participants, body.tc_term or 0, expires_at_ms)


def _txn_id(text: str | None, request: Request) -> str:
    txn_id = (text or request.query("txn_id") or "").strip()
    if not txn_id:
        raise MissingTxnId("txn_id is required")
    if not is_xid(txn_id):
        raise InvalidTxnId("txn_id is no transaction id: send one that an acquire answered")
    return txn_id


def _state(text: str) -> State:
    try:
        return State(text.strip().lower())
    except ValueError:
        raise InvalidState("state must be pending, commit or rollback") from None


def _participant(body: ParticipantBody) -> Participant:
    namespace = stored_namespace(body.namespace or "")
    key = spelled_key(body.key or "", namespace)
    if not key:
        raise InvalidKey("a participant needs a key")
    if body.backend_hash and not body.backend_hash.strip():
        raise InvalidBackendHash("backend_hash is blank; leave it out for this island")
    return Participant(Member(namespace, stored_key(key)), (body.backend_hash or "").strip())


def _answer(txn_id: str, state: State) -> Answer:
    return json_answer({"txn_id": txn_id, "state": state.value})


def _shown(listed: Listed) -> dict[str, object]:
    shown: dict[str, object] = {
        "txn_id": listed.txn_id,
        "state": listed.state.value,
        "in_doubt": listed.is_in_doubt,
        "age_seconds": listed.age_s,
    }
    if listed.expires_at_s:
        shown["expires_at_unix"] = listed.expires_at_s
    if listed.term:
        shown["tc_term"] = listed.term
    shown["participants"] = [
        {
            "namespace": one.namespace,
            "key": one.key,
            **({"backend_hash": one.backend_hash} if one.backend_hash else {}),
            **({"applied": True} if one.is_applied else {}),
        }
        for one in listed.participants
    ]
    return shown
