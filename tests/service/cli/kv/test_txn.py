"""`holdfast kv txn`: a transaction in the language of etcdctl."""

import json

import pytest

from holdfast.client import Client
from tests.service.cli.kv.commands import kv, value_of

MOVE = """\
mod("from") > "0"
val("from") = "value"

put to "a value"
get to
del from --prev-kv
get "" --from-key --count-only
get "" --from-key --keys-only

get from
get from --count-only
"""


def test_a_transaction_is_told_in_three_parts(client: Client) -> None:
    client.kv.put("from", "value")

    first = kv("txn", given=MOVE)
    second = kv("txn", given=MOVE)

    assert first.stdout == "SUCCESS\n\nOK\n\nto\na value\n\n1\nfrom\nvalue\n\n1\n\nto\n"
    assert second.stdout == "FAILURE\n\n\n0\n"
    assert value_of(client, "to") == b"a value"


def test_a_transaction_asks_for_its_parts_on_standard_error() -> None:
    result = kv("txn", "-i", "--output", "json", given='ver("a") = "0"\n\nput a 1\n\n')

    assert json.loads(result.stdout)["succeeded"] is True
    assert result.stderr.splitlines() == [
        "compares:",
        "success requests (get, put, del):",
        "failure requests (get, put, del):",
    ]


@pytest.mark.parametrize("text", ["mod(a) > 0\n", "\nfrob a\n", "\nput a\n"])
def test_a_line_that_is_no_part_of_a_transaction_is_named(client: Client, text: str) -> None:
    result = kv("txn", given=text)

    assert (result.exit_code, result.stdout) == (2, "")
    assert text.strip() in result.stderr


def test_a_transaction_that_changes_a_key_twice_is_refused() -> None:
    result = kv("txn", given="\nput a 1\nput a 2\n")

    assert result.exit_code == 1
    assert result.stderr == "error: etcdserver: duplicate key given in txn request\n"
