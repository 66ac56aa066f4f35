"""A simulated cluster: nodes with real elections over real terms in a store, and a network that can't be trusted."""

import asyncio
from collections.abc import Callable, Mapping
from random import Random

from holdfast.storage.port import Store
from holdfast.txn.cluster.election.ballot import Node
from holdfast.txn.cluster.election.election import Election
from holdfast.txn.cluster.election.keeper import LeaseKeeper
from holdfast.txn.cluster.election.terms import StoredTerms
from holdfast.txn.cluster.election.timing import ElectionTiming
from holdfast.txn.cluster.peers.port import PeerAnswer, PeerUnreachable, Role
from holdfast.txn.layer.errors import LeaderRefusal
from tests.unit.txn.virtual_time import now_ms

PACE = ElectionTiming()


class SimulatedNode:
    """One process that can be killed, restarted and frozen. What it stored stays."""

    def __init__(self, name: str, store: Store, network: "Network", random: Random) -> None:
        self.node = Node(name, f"http://{name}")
        self._terms = StoredTerms(store, name)
        self._network = network
        self._random = random
        self._task: asyncio.Task[None] | None = None
        self.election: Election | None = None
        self._keeper: LeaseKeeper | None = None
        self.is_running = asyncio.Event()
        """Not set while frozen: nothing reaches it, and nothing leaves it."""
        self.is_running.set()

    @property
    def is_alive(self) -> bool:
        return self._task is not None

    def term(self) -> int | None:
        return self.election.term() if self.election is not None else None

    async def start(self, peers: list[str], quorum: int | None = None) -> None:
        self._keeper = await LeaseKeeper.opened(self._terms, now_ms)
        self.election = Election(
            self.node,
            self._keeper,
            Port(self, self._network),
            now_ms=now_ms,
            random=self._random,
            timing=PACE,
        )
        self.election.set_peers(peers, quorum)
        self._task = asyncio.create_task(self.election.run())

    async def kill(self) -> None:
        task, self._task, self.election, self._keeper = self._task, None, None, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def handle(self, path: str, body: Mapping[str, object]) -> PeerAnswer:
        """The routes in short: what they answer is tested with them."""
        assert self.election is not None and self._keeper is not None
        answer = PeerAnswer(200, body)
        term, ttl_ms = answer.number("term"), answer.number("ttl_ms")
        try:
            if path == "/v1/tc/lease/acquire":
                who, where = answer.text("candidate_id"), answer.text("candidate_endpoint")
                await self._keeper.acquire(who, where, term=term, ttl_ms=ttl_ms)
                return PeerAnswer(200, {"granted": True})
            if path == "/v1/tc/lease/renew":
                await self._keeper.renew(answer.text("leader_id"), term=term, ttl_ms=ttl_ms)
                return PeerAnswer(200, {"renewed": True})
            if path == "/v1/tc/lease/release":
                await self.election.released(answer.text("leader_id"), term)
                return PeerAnswer(200, {"released": True})
        except LeaderRefusal as refusal:
            return PeerAnswer(refusal.status, {"error": refusal.code})
        lease = self.election.lease()
        if not lease.is_observed or not lease.is_active(now_ms()):
            return PeerAnswer(200, {"term": lease.term})
        return PeerAnswer(
            200,
            {
                "leader_id": lease.leader_id,
                "leader_endpoint": lease.endpoint,
                "term": lease.term,
                "expires_at": lease.expires_at_ms,
            },
        )


class Network:
    """Messages take their time, get lost, arrive after their sender has given up."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.nodes: dict[str, SimulatedNode] = {}
        self.loss = 0.0
        self.delay_s_max = 0.05
        self._cuts: set[tuple[str, str]] = set()
        self._deliveries: set[asyncio.Task[None]] = set()
        self.message_count = 0

    def cut(self, source: str, target: str) -> None:
        self._cuts.add((source, target))

    def isolate(self, *names: str) -> None:
        """Cut these off from all the others, in both directions."""
        for inside in names:
            for outside in self.nodes.keys() - set(names):
                self._cuts |= {(inside, outside), (outside, inside)}

    def heal(self) -> None:
        self._cuts.clear()
        self.loss, self.delay_s_max = 0.0, 0.05

    def send(
        self, source: SimulatedNode, target: SimulatedNode, path: str, body: Mapping[str, object]
    ) -> asyncio.Future[PeerAnswer]:
        answer: asyncio.Future[PeerAnswer] = asyncio.get_running_loop().create_future()
        delivery = asyncio.create_task(self._deliver(source, target, path, body, answer))
        self._deliveries.add(delivery)
        delivery.add_done_callback(self._deliveries.discard)
        return answer

    async def _deliver(
        self,
        source: SimulatedNode,
        target: SimulatedNode,
        path: str,
        body: Mapping[str, object],
        answer: asyncio.Future[PeerAnswer],
    ) -> None:
        if not await self._travel(source, target):
            return
        await target.is_running.wait()
        if not target.is_alive:
            return
        reply = await target.handle(path, body)
        if not await self._travel(target, source):
            return
        await source.is_running.wait()
        if not answer.done():
            answer.set_result(reply)

    async def _travel(self, source: SimulatedNode, target: SimulatedNode) -> bool:
        self.message_count += 1
        await source.is_running.wait()
        await asyncio.sleep(self._random.uniform(0.001, self.delay_s_max))
        is_cut = (source.node.id, target.node.id) in self._cuts
        return not is_cut and self._random.random() >= self.loss


class Port:
    """The `PeerPort` of one node."""

    def __init__(self, source: SimulatedNode, network: Network) -> None:
        self._source = source
        self._network = network

    async def call(
        self,
        endpoint: str,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        timeout_s: float,
        role: Role = Role.CLIENT,
        headers: Mapping[str, str] | None = None,
    ) -> PeerAnswer:
        target = self._network.nodes[endpoint.removeprefix("http://")]
        if not target.is_alive:
            raise PeerUnreachable("connection refused")
        try:
            async with asyncio.timeout(timeout_s):
                return await self._network.send(self._source, target, path, body or {})
        except TimeoutError as error:
            raise PeerUnreachable("no answer in time") from error


class Observer:
    """Watches which node decides: no other may in the same term, nor at the same moment."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self.leaders: dict[int, str] = {}

    async def watch(self, step_s: float = 0.1) -> None:
        while True:
            self.look()
            await asyncio.sleep(step_s)

    def look(self) -> None:
        deciding = [(node.node.id, term) for node in self._network.nodes.values() if (term := node.term())]
        assert len(deciding) <= 1, f"several decide at once: {deciding}"
        for name, term in deciding:
            assert self.leaders.setdefault(term, name) == name, (
                f"{name} and {self.leaders[term]} in term {term}"
            )


async def until(condition: Callable[[], bool], *, within_s: float) -> None:
    """Let virtual time pass until something holds."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - sampled: what is waited for is the absence of events as well
            await asyncio.sleep(0.01)
