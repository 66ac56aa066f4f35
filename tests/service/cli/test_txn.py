"""`holdfast txn`: what it sends and prints."""

import json

import pytest
from typer.testing import CliRunner, Result

from holdfast.cli.main import app
from tests.infra.fake_plane import FakePlane, reply

TXN = "dbt4ue9ksducbc8b3lh0"


def txn(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["txn", *arguments])


@pytest.mark.parametrize(
    ("command", "state"), [("prepare", "pending"), ("commit", "commit"), ("rollback", "rollback")]
)
def test_a_decision_names_its_participants(plane: FakePlane, command: str, state: str) -> None:
    plane.then("/v1/txn/decide", reply(200, txn_id=TXN, state=state))

    result = txn(command, "--txn-id", TXN, "-n", "shop", "-p", "a", "-p", "other:b/c@h1")

    assert result.stdout == f"txn_id={TXN} state={state}\n"
    assert plane.at("/v1/txn/decide")[0].members() == {
        "txn_id": TXN,
        "state": state,
        "participants": [
            {"namespace": "shop", "key": "a"},
            {"namespace": "other", "key": "b/c", "backend_hash": "h1"},
        ],
    }


def test_what_is_prepared_names_the_second_of_its_rollback(plane: FakePlane) -> None:
    plane.then("/v1/txn/decide", reply(200, txn_id=TXN, state="pending"))

    txn("prepare", "-t", TXN, "-p", "a", "--expires-unix", "1900000000")

    assert plane.at("/v1/txn/decide")[0].members()["expires_at_unix"] == 1_900_000_000


@pytest.mark.parametrize("prefix", ["HOLDFAST_CLIENT_", "LOCKD_CLIENT_"])
def test_the_transaction_is_the_one_of_the_environment(
    plane: FakePlane, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    monkeypatch.setenv(f"{prefix}TXN_ID", TXN)
    plane.then("/v1/txn/replay", reply(200, txn_id=TXN, state="commit"))

    result = txn("replay", "--output", "json")

    assert json.loads(result.stdout) == {"txn_id": TXN, "state": "commit"}


def test_without_a_transaction_nothing_is_sent(plane: FakePlane) -> None:
    result = txn("commit")

    assert result.exit_code == 1
    assert "give --txn-id" in result.stderr


def test_a_refusal_is_one_line(plane: FakePlane) -> None:
    plane.then("/v1/txn/replay", reply(404, error="txn_not_found", detail="no such transaction"))

    result = txn("replay", "-t", TXN)

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "error: txn_not_found (no such transaction)\n"


def test_a_participant_that_is_none_is_refused(plane: FakePlane) -> None:
    result = txn("commit", "-t", TXN, "-p", "a@")

    assert result.exit_code == 1
    assert "[namespace:]key[@hash]" in result.stderr


def test_transactions_are_listed_with_age_and_participants(plane: FakePlane) -> None:
    doubtful = {
        "txn_id": TXN,
        "state": "commit",
        "in_doubt": True,
        "age_seconds": 7,
        "participants": [
            {"namespace": "n", "key": "a", "applied": True},
            {"namespace": "n", "key": "b", "backend_hash": "h"},
        ],
    }
    plane.then("/v1/txn/list", reply(200, transactions=[doubtful]), reply(200, transactions=[]))
    plane.then("/v1/txn/list", reply(200, transactions=[doubtful]))

    shown, empty, as_json = txn("list"), txn("list"), txn("list", "-o", "json", "--limit", "5")

    assert shown.stdout == f"{TXN} commit IN DOUBT age=7s 2 participants: n:a (applied), n:b@h\n"
    assert empty.stdout == "no transaction is under way\n"
    assert json.loads(as_json.stdout) == [doubtful]
    assert plane.at("/v1/txn/list")[2].query == {"limit": "5"}
