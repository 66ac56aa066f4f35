"""What a store must say about commits that overlap: each is predicted in the step that stages it, and checked when it ends.

The commits that were staged are a chain: each is built on the one before it. A failed write cuts off the end of the chain, and
so may a power cut, but only where nothing was acknowledged.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.storage.port import ABSENT, Batch, Event, Record

State = dict[bytes, Record]


@dataclass(slots=True, eq=False)
class Commit:
    """One that was staged, and what it makes of the state before it."""

    revision: int
    before: "Commit | None"
    events: list[Event]
    state: State
    is_acknowledged: bool = False
    is_lost: bool = False


@dataclass(slots=True, eq=False)
class Prediction:
    """What a call has to end with: its commit, the conflict that it met, or neither, because nothing is taken any more.
    `after` must be durable first."""

    commit: Commit | None = None
    conflict: bytes | None = None
    after: Commit | None = None
    is_refused: bool = False


@dataclass(slots=True)
class TurnModel:
    """One store over all its lives."""

    chain: list[Commit] = field(default_factory=list[Commit])
    """All that is staged and not lost, oldest first; the newest state is that of the last one."""
    undecided: list[Commit] = field(default_factory=list[Commit])
    """Of this life, lost: after the next opening they may be there all the same."""
    revision: int = 0
    """The last number given out."""
    is_read_only: bool = False

    @property
    def newest(self) -> Commit | None:
        return self.chain[-1] if self.chain else None

    @property
    def latest(self) -> State:
        return self.chain[-1].state if self.chain else {}

    def mod_revision(self, key: bytes) -> int:
        record = self.latest.get(key)
        return ABSENT if record is None else record.mod_revision

    def stage(self, batch: Batch) -> Prediction:
        """To be called in the step that stages."""
        if self.is_read_only:
            return Prediction(is_refused=True)
        for key, revision in batch.expects.items():
            if self.mod_revision(key) != revision:
                return Prediction(conflict=key, after=self.newest)
        self.revision += 1
        state, events = applied(batch, self.latest, self.revision)
        commit = Commit(self.revision, self.newest, events, state)
        self.chain.append(commit)
        return Prediction(commit=commit)

    def lose(self, durable_revision: int, *, is_fatal: bool) -> None:
        """Everything above is lost; the numbers given out are burnt, and one more."""
        kept = [commit for commit in self.chain if commit.revision <= durable_revision]
        for commit in self.chain[len(kept) :]:
            assert not commit.is_acknowledged, f"revision {commit.revision} was acknowledged, and is given up"
            commit.is_lost = True
            self.undecided.append(commit)
        self.chain = kept
        self.revision += 1
        self.is_read_only = self.is_read_only or is_fatal

    def opened(self, revision: int, history: Sequence[Event], compacted_revision: int) -> None:
        """After a restart: what was acknowledged is there, and of all else a beginning, each commit whole and on that which
        it was built on."""
        staged = {commit.revision: commit for commit in [*self.chain, *self.undecided]}
        assert len(staged) == len(self.chain) + len(self.undecided), "a revision was given out twice"
        found = sorted({event.revision for event in history})
        old = [commit for commit in self.chain if commit.revision <= compacted_revision]
        chain = list(old)
        for number in found:
            assert number in staged, f"revision {number} was never staged"
            commit = staged[number]
            assert commit.before is (chain[-1] if chain else None), (
                f"revision {number} lacks what it was built on"
            )
            assert of_revision(history, number) == by_key(commit.events), f"revision {number} is torn"
            chain.append(commit)
        for commit in self.chain:
            assert not commit.is_acknowledged or commit in chain, f"revision {commit.revision} is lost"
        assert revision == (chain[-1].revision if chain else 0)
        self.chain = chain
        self.undecided = []
        self.revision = revision
        self.is_read_only = False
        for commit in chain:
            commit.is_acknowledged, commit.is_lost = True, False  # A reader has seen it.

    def shown(self, revision: int) -> State:
        """The state that readers see at a revision of the chain."""
        state: State = {}
        for commit in self.chain:
            if commit.revision > revision:
                break
            state = commit.state
        return state

    def events(self, after: int, up_to: int) -> list[Event]:
        """As a watch tells them."""
        return [
            event
            for commit in self.chain
            if after < commit.revision <= up_to
            for event in by_key(commit.events)
        ]


def applied(batch: Batch, before: State, revision: int) -> tuple[State, list[Event]]:
    state, events = dict(before), list[Event]()
    for key, value in batch.puts.items():
        state[key] = Record.after(before.get(key), key, value, revision)
        events.append(Event(revision, key, state[key], before.get(key)))
    for key in batch.deletes:
        gone = state.pop(key, None)
        if gone is not None:
            events.append(Event(revision, key, None, gone))
    return state, events


def by_key(events: Sequence[Event]) -> list[Event]:
    return sorted(events, key=lambda event: event.key)


def of_revision(events: Sequence[Event], revision: int) -> list[Event]:
    return by_key([event for event in events if event.revision == revision])
