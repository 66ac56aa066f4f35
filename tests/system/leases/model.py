"""What a key with a lease may do, and whether a recorded history is something such a key could have done.

The check follows Wing and Gong, event by event: it carries along every state the key can be in, each with the running
operations that have taken effect already. An operation that returns must have taken effect in one of them; if there is
none left, the history is not linearizable. Leases end by time, which the model does not know exactly: a lease lives at
least until it was asked for plus its TTL, and at most until it was answered plus its TTL.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of a client. `result` is what it was told; its type depends on `name`.

    acquire     Granted; `value` is how long it was ready to wait, in seconds, -1 not at all
    keepalive   the new lifetime begins
    update      the version that `value` will have once it is published
    release     nothing told; `value` is "commit" or "rollback"
    read        the committed document
    read_own    the document as the holder sees it

    All but read and release may be told REFUSED instead.
    """

    client: int
    key: str
    name: str
    start_s: float
    end_s: float
    lease_id: str = ""
    value: object = None
    result: object = None
    ttl_s: float = 0.0


class Granted(NamedTuple):
    lease_id: str
    token: int
    version: int


REFUSED: Final = "refused"
ROUNDING_S: Final = 1.0
"""An end is a whole second, rounded up."""

CLOCK_STEP_S: Final = 0.002
"""A server's clock counts milliseconds, so what it calls now may be a little less."""


class State(NamedTuple):
    """A key between two operations."""

    token: int = 0
    holder: str = ""
    lives_until_s: float = 0.0
    dead_after_s: float = 0.0
    document: object = None
    version: int = 0
    staged: object = None

    def free(self) -> "State":
        return State(token=self.token, document=self.document, version=self.version)

    def may_be_over(self, operation: Operation) -> bool:
        return operation.end_s >= self.lives_until_s - CLOCK_STEP_S

    def may_live(self, operation: Operation) -> bool:
        return operation.start_s <= self.dead_after_s + CLOCK_STEP_S


class Violation(NamedTuple):
    """The operation that nothing explains, and the states in which the key could have been."""

    operation: Operation
    states: list[State]


def steps(state: State, operation: Operation, has_rivals: bool) -> Iterator[State]:
    """The states after an operation with that result; none if it can't have had it here."""
    if operation.name == "acquire":
        yield from _acquire(state, operation, has_rivals)
    elif operation.name == "read":
        if operation.result == state.document:
            yield state
    else:
        yield from _as_holder(state, operation)


def _acquire(state: State, operation: Operation, has_rivals: bool) -> Iterator[State]:
    granted = operation.result
    if not isinstance(granted, Granted):
        # Waiters go first, also when the key has just become free.
        if has_rivals or (state.holder and state.may_live(operation)):
            yield state
        return
    is_free = not state.holder or state.may_be_over(operation)
    if is_free and granted.token > state.token and granted.version == state.version:
        yield State(
            token=granted.token,
            holder=granted.lease_id,
            lives_until_s=operation.start_s + operation.ttl_s,
            dead_after_s=operation.end_s + operation.ttl_s + ROUNDING_S,
            document=state.document,
            version=state.version,
        )


def _as_holder(state: State, operation: Operation) -> Iterator[State]:
    """What only the holder may do: both ends of a lease that may or may not be over are followed."""
    is_holder = state.holder == operation.lease_id
    if is_holder and state.may_live(operation):
        yield from _allowed(state, operation)
    if not is_holder and _is_refusal(operation):
        yield state
    if is_holder and state.may_be_over(operation) and _is_refusal(operation):
        yield state.free()


def _is_refusal(operation: Operation) -> bool:
    """A release is answered alike whether or not there still was something to release."""
    return operation.name == "release" or operation.result == REFUSED


def _allowed(state: State, operation: Operation) -> Iterator[State]:
    if operation.result == REFUSED:
        return
    if operation.name == "keepalive":
        yield state._replace(
            lives_until_s=operation.start_s + operation.ttl_s,
            dead_after_s=operation.end_s + operation.ttl_s + ROUNDING_S,
        )
    elif operation.name == "update" and operation.result == state.version + 1:
        yield state._replace(staged=operation.value)
    elif operation.name == "read_own":
        seen = state.document if state.staged is None else state.staged
        if operation.result == seen:
            yield state
    elif operation.name == "release":
        if operation.value == "commit" and state.staged is not None:
            yield state.free()._replace(document=state.staged, version=state.version + 1)
        else:
            yield state.free()


def first_violation(history: Sequence[Operation]) -> Violation | None:
    """None if every key of the history did what such a key may do."""
    keys = {operation.key for operation in history}
    for key in sorted(keys):
        of_key = [operation for operation in history if operation.key == key]
        violation = _check_key(of_key)
        if violation is not None:
            return violation
    return None


Configuration = tuple[State, frozenset[int]]
"""A state, and which of the running operations have taken effect in it."""


def _check_key(history: Sequence[Operation]) -> Violation | None:
    events = sorted(
        [(operation.start_s, 0, number) for number, operation in enumerate(history)]
        + [(operation.end_s, 1, number) for number, operation in enumerate(history)]
    )
    rivals = _rivals(history)
    configurations: set[Configuration] = {(State(), frozenset())}
    running: set[int] = set()
    for _, is_end, number in events:
        if not is_end:
            running.add(number)
            continue
        reached = _returned(configurations, running, number, history, rivals)
        if not reached:
            return Violation(history[number], [state for state, _ in configurations])
        running.discard(number)
        configurations = reached
    return None


def _returned(
    configurations: set[Configuration],
    running: set[int],
    number: int,
    history: Sequence[Operation],
    rivals: set[int],
) -> set[Configuration]:
    """Let running operations take effect in every possible order until `number` has."""
    reached: set[Configuration] = set()
    seen = set(configurations)
    waiting = list(configurations)
    while waiting:
        state, done = waiting.pop()
        if number in done:
            reached.add((state, done - {number}))
            continue
        for other in running - done:
            for after in steps(state, history[other], other in rivals):
                configuration = (after, done | {other})
                if configuration not in seen:
                    seen.add(configuration)
                    waiting.append(configuration)
    return reached


def _rivals(history: Sequence[Operation]) -> set[int]:
    """The refused acquires during which there was a waiter."""
    acquires = [(number, one) for number, one in enumerate(history) if one.name == "acquire"]
    in_line = [one for _, one in acquires if one.value != -1]
    return {
        number
        for number, refused in acquires
        if refused.result == REFUSED
        and any(
            other is not refused and other.start_s <= refused.end_s and refused.start_s <= other.end_s
            for other in in_line
        )
    }
