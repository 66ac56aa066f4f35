"""The rules of decisions, without a store."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.txn.layer import rules
from holdfast.txn.layer.errors import TcTermRequired, TcTermStale, TxnConflict
from holdfast.txn.layer.port import Member
from holdfast.txn.layer.records_pb2 import TxnMarker, TxnRecord
from holdfast.txn.layer.rules import Ask, Participant, State

A, B = Member("n", "a"), Member("n", "b")


def participants(record: TxnRecord) -> list[tuple[str, str, bool]]:
    return [(one.key, one.backend_hash, one.is_applied) for one in record.participants]


def test_a_known_island_fills_an_unknown_one_and_applied_stays() -> None:
    record = TxnRecord()
    record.participants.add(namespace="n", key="b", is_applied=True)
    record.participants.add(namespace="n", key="a", backend_hash="h2")

    rules.merge_participants(record, [Participant(B, "h1"), Participant(A), Participant(A, "h1")])

    assert participants(record) == [("a", "h1", False), ("b", "h1", True), ("a", "h2", False)]


@pytest.mark.parametrize("known", [TxnRecord, TxnMarker])
@pytest.mark.parametrize(
    ("term", "asked", "state", "outcome"),
    [
        (5, 0, State.COMMIT, TcTermRequired),
        (5, 4, State.COMMIT, TcTermStale),
        (5, 5, State.COMMIT, None),
        (5, 6, State.COMMIT, None),
        (5, 5, State.ROLLBACK, TxnConflict),
        (5, 6, State.ROLLBACK, TxnConflict),
        (0, 1, State.ROLLBACK, TxnConflict),
        (0, 0, State.ROLLBACK, None),
        (0, 0, State.PENDING, None),
    ],
)
def test_what_is_decided_stays(
    known: type[TxnRecord] | type[TxnMarker],
    term: int,
    asked: int,
    state: State,
    outcome: type[Exception] | None,
) -> None:
    found = known(state="commit", term=term)
    record = found if isinstance(found, TxnRecord) else None
    marker = found if isinstance(found, TxnMarker) else None
    ask = Ask(state, [Participant(A)], asked)

    if outcome is not None:
        with pytest.raises(outcome):
            rules.recorded(record, marker, ask)
        return
    result = rules.recorded(record, marker, ask)

    assert (result.state, result.term) == ("commit", term)


def test_a_record_counts_before_a_marker() -> None:
    result = rules.recorded(TxnRecord(), TxnMarker(state="commit"), Ask(State.ROLLBACK))

    assert result == TxnRecord(state="rollback")


asks = st.builds(
    Ask,
    st.sampled_from(State),
    st.lists(st.builds(Participant, st.sampled_from([A, B]), st.sampled_from(["", "h1", "h2"]))),
    st.integers(0, 3),
    st.integers(0, 1 << 50),
)


@given(st.lists(asks, max_size=12))
def test_no_order_of_requests_changes_a_decision_or_lowers_a_term(requests: list[Ask]) -> None:
    record: TxnRecord | None = None
    for ask in requests:
        try:
            outcome = rules.recorded(record, None, ask)
        except (TcTermRequired, TcTermStale, TxnConflict):
            continue
        assert isinstance(outcome, TxnRecord)
        if record is not None:
            assert outcome.term >= record.term
            assert rules.state_of(record) in (State.PENDING, rules.state_of(outcome))
        islands = participants(outcome)
        assert len(set(islands)) == len(islands)
        record = outcome
