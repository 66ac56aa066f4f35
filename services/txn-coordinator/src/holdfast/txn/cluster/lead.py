"""Who decides in a cluster: the leader, under its term. Every other node forwards, and applies here what was recorded.

Without a cluster all of this is the node's own business, and goes straight to `Decisions`.
"""

from collections.abc import Callable, Sequence
from typing import Final

from holdfast.common.upstream.internal_call import Forwarded
from holdfast.txn.cluster.errors import TcNotLeader, TcUnavailable
from holdfast.txn.cluster.leadership import Leader, Leadership
from holdfast.txn.cluster.peers.port import PeerAnswer, PeerPort, PeerUnreachable
from holdfast.txn.layer import rules
from holdfast.txn.layer.decisions import Decisions
from holdfast.txn.layer.errors import TxnConflict
from holdfast.txn.layer.port import Decision, Member
from holdfast.txn.layer.records import Due
from holdfast.txn.layer.rules import Ask, Participant, State

FORWARDED: Final = "X-Lockd-TC-Forwarded"
_TIMEOUT_S: Final = 5.0
_SLACK_MS: Final = 2000


class Lead:
    """Decisions of this node, as its place in the cluster allows them."""

    def __init__(self, leadership: Leadership, peers: Callable[[], PeerPort], decisions: Decisions) -> None:
        self._leadership = leadership
        self._peers = peers
        self._decisions = decisions

    @property
    def is_clustered(self) -> bool:
        return self._leadership.is_clustered

    async def decide(self, txn_id: str, ask: Ask, *, is_forwarded: bool = False) -> State:
        """What the leader has recorded."""
        if not self.is_clustered:
            return await self._decisions.decide(txn_id, ask)
        term = self._leadership.term()
        if term is not None:
            return await self._decisions.decide(txn_id, ask._replace(term=term))
        leader = self._leader()
        if is_forwarded:
            raise TcNotLeader("this node does not lead; ask the leader", leader.endpoint)
        located = [self._decisions.located(one) for one in ask.participants]
        body: dict[str, object] = {
            "txn_id": txn_id,
            "state": ask.state.value,
            "participants": [_participant_body(one) for one in located],
            "expires_at_unix": -(-ask.expires_at_ms // 1000),  # Rather too late than before the lease.
        }
        return _state(await self._ask(leader, "/v1/txn/decide", body))

    async def end_with_lease(self, txn_id: str, decision: Decision) -> State:
        """A lease of the transaction ends here, and with it the transaction, wherever its other parts are."""
        if not self.is_clustered:
            return await self._decisions.end_with_lease(txn_id, decision)
        return await self._follow(txn_id, State(decision.value), await self._decisions.held(txn_id))

    async def enlist(self, txn_id: str, expires_at_ms: int, members: Sequence[Member]) -> None:
        """Let the leader know who takes part here, and until when; and remember here that it does."""
        participants = [self._decisions.located(Participant(member)) for member in members]
        # Later than its lease: asking again a moment later, with a later end, need not tell the leader again.
        ask = Ask(State.PENDING, participants, 0, expires_at_ms + _SLACK_MS)
        state = await self.decide(txn_id, ask)
        if state is not State.PENDING:
            raise TxnConflict(f"the transaction is decided: {state}; begin another one")
        if self.is_clustered and self._leadership.term() is None:
            await self._decisions.decide(txn_id, ask._replace(term=self._leader().term))

    async def replay(self, txn_id: str) -> State:
        """Apply what is recorded again; a transaction whose time is over is ended by the leader only."""
        if not self.is_clustered:
            return await self._decisions.replay(txn_id)
        term = self._leadership.term()
        if term is not None:
            return await self._decisions.replay(txn_id, term=term)
        state = await self._decisions.replay(txn_id, may_end=False)
        members = await self._decisions.overdue(txn_id) if state is State.PENDING else None
        return state if members is None else await self._follow(txn_id, State.ROLLBACK, members)

    async def resume(self, due: Due) -> None:
        """For the sweep: only the leader ends a transaction whose time is over; the others ask it, and hand over what they know."""
        term = self._leadership.term() if self.is_clustered else 0
        if term is not None:
            await self._decisions.resume(due, term=term)
            return
        record = await self._decisions.postpone(due)
        if record is None:
            return
        participants = [
            Participant(Member(one.namespace, one.key), one.backend_hash) for one in record.participants
        ]
        if rules.state_of(record) is State.PENDING:
            if not await self._lives_elsewhere(due.txn_id):
                await self._follow(due.txn_id, State.ROLLBACK, [one.member for one in participants])
            return
        await self.decide(due.txn_id, Ask(rules.state_of(record), participants))
        await self._decisions.handed_over(due.txn_id, record)

    async def _lives_elsewhere(self, txn_id: str) -> bool:
        """Whether a transaction that only sends messages here is kept alive by leases on other islands."""
        if not await self._decisions.only_sends(txn_id):
            return False
        try:
            answer = await self._ask(self._leader(), "/v1/txn/replay", {"txn_id": txn_id})
        except Forwarded:
            return False  # The leader knows nothing of it.
        return _state(answer) is State.PENDING

    async def _follow(self, txn_id: str, state: State, members: Sequence[Member]) -> State:
        """Ask for a decision, and apply here what is recorded, be it another one."""
        participants = [self._decisions.located(Participant(member)) for member in members]
        try:
            recorded = await self.decide(txn_id, Ask(state, participants))
        except TxnConflict:
            recorded = await self._decisions.replay(txn_id)
        except Forwarded as refusal:
            if refusal.code != "txn_conflict":
                raise
            recorded = _state(await self._ask(self._leader(), "/v1/txn/replay", {"txn_id": txn_id}))
        if self._leadership.term() is None and await self._decisions.held(txn_id):
            # The leader's own word has not come here yet; it will find that there is nothing left to do.
            await self._decisions.decide(txn_id, Ask(recorded, participants, self._leader().term))
        return recorded

    def _leader(self) -> Leader:
        leader = self._leadership.leader()
        if leader is None:
            raise TcUnavailable("no leader is known; try again when one is elected", retry_after_s=1)
        return leader

    async def _ask(self, leader: Leader, path: str, body: dict[str, object]) -> PeerAnswer:
        try:
            answer = await self._peers().call(
                leader.endpoint, path, body, timeout_s=_TIMEOUT_S, headers={FORWARDED: "1"}
            )
        except PeerUnreachable as error:
            raise TcNotLeader(f"the leader was not reached: {error}", leader.endpoint) from error
        if not answer.is_ok:
            members = dict(answer.members)
            # Something between here and the leader answered, or one that does not speak as a node.
            members.setdefault("error", "tc_forward_failed")
            raise Forwarded(answer.status, members)
        return answer


def _participant_body(participant: Participant) -> dict[str, str]:
    (namespace, key), backend_hash = participant
    return {"namespace": namespace, "key": key, "backend_hash": backend_hash}


def _state(answer: PeerAnswer) -> State:
    try:
        return State(answer.text("state"))
    except ValueError:
        raise Forwarded(502, {}) from None
