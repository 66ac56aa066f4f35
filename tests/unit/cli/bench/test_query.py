"""`holdfast bench query`: the documents it asks for, and what it tells."""

import json

from holdfast.cli.bench.query import DOCUMENT_BYTES, MATCHES, document


def test_documents_have_a_kilobyte_and_share_their_groups() -> None:
    documents = [json.loads(document(number)) for number in range(1000)]

    for count in MATCHES:
        groups = [members[f"shared_by_{count}"] for members in documents]
        assert {groups.count(group) for group in set(groups)} == {count}
    assert {len(document(number)) for number in (0, 7, 12345)} == {DOCUMENT_BYTES}


def test_a_turn_changes_two_fields() -> None:
    before, after = json.loads(document(3, turn=4)), json.loads(document(3, turn=5))

    assert {name for name in before if before[name] != after[name]} == {"status", "turn"}
