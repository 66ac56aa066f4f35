"""`holdfast client` against a fake plane: what it sends, and what it prints to the letter."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from holdfast.cli.client.print import pretty, shell_quoted
from holdfast.cli.main import app
from tests.infra.fake_plane import FakePlane, Reply, reply
from tests.infra.invocation import client


def test_acquire_prints_exports_in_their_order(plane: FakePlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKD_CLIENT_CORRELATION_ID", "job-4711")

    result = client("acquire", "-k", "orders", "--owner", "me", "--ttl", "45s", "--block", "2m")

    holder = plane.keys["orders"].holder
    assert holder is not None
    url = os.environ["HOLDFAST_CLIENT_SERVER"]
    assert result.stdout.splitlines() == [
        f'export HOLDFAST_CLIENT_LEASE="{holder["lease_id"]}"',
        'export HOLDFAST_CLIENT_KEY="orders"',
        'export HOLDFAST_CLIENT_OWNER="me"',
        'export HOLDFAST_CLIENT_FENCING_TOKEN="1"',
        f'export HOLDFAST_CLIENT_TXN_ID="{holder["txn_id"]}"',
        f'export HOLDFAST_CLIENT_SERVER="{url}"',
        'export HOLDFAST_CLIENT_VERSION="0"',
        'export HOLDFAST_CLIENT_ETAG=""',
        'export HOLDFAST_CLIENT_EXPIRES_UNIX="4000000000"',
        'export HOLDFAST_CLIENT_NAMESPACE="default"',
        'export HOLDFAST_CLIENT_CORRELATION_ID="job-4711"',
    ]
    asked = plane.at("/v1/acquire")[0].members()
    assert (asked["ttl_seconds"], asked["block_seconds"], asked["owner"]) == (45, 120, "me")
    assert plane.at("/v1/release") == []


@pytest.mark.parametrize(
    ("block", "on_the_wire"),
    [
        ("0", 0),
        ("forever", 0),
        ("infinite", 0),
        ("-1", -1),
        ("nowait", -1),
        ("-5s", -1),
        ("30", 30),
        ("1.5s", 2),
    ],
)
def test_acquire_knows_every_spelling_of_waiting(plane: FakePlane, block: str, on_the_wire: int) -> None:
    client("acquire", "-k", "orders", f"--block={block}")

    assert plane.at("/v1/acquire")[0].members()["block_seconds"] == on_the_wire


def test_acquire_prints_json_as_it_came(plane: FakePlane) -> None:
    result = client("acquire", "-k", "orders", "--output", "json")

    assert json.loads(result.stdout) == plane.keys["orders"].holder
    assert result.stdout.startswith('{\n  "namespace": "default",\n')


def test_a_held_key_ends_with_one_line_and_status_1(held: FakePlane) -> None:
    result = client("acquire", "-k", "orders", "--block", "nowait")

    assert result.exit_code == 1
    assert result.stderr == "error: waiting (lease already held)\n"
    assert re.fullmatch(r"unset( (HOLDFAST|LOCKD)_CLIENT_\w+)+\n\(exit 1\)\n", result.stdout)


def test_a_second_acquire_in_the_same_shell_joins_the_transaction(held: FakePlane) -> None:
    client("acquire", "-k", "second")

    holders = [held.keys[name].holder for name in ("orders", "second")]
    assert len({holder["txn_id"] for holder in holders if holder is not None}) == 1


def test_an_acquire_after_the_release_names_the_same_transaction_unless_told_otherwise(
    held: FakePlane,
) -> None:
    client("release")

    client("acquire", "-k", "same")
    client("acquire", "-k", "other", "--txn-id", "")

    first, same, other = (asked.members().get("txn_id") for asked in held.at("/v1/acquire"))
    assert (first, other) == (None, None)
    assert same == os.environ["HOLDFAST_CLIENT_TXN_ID"]


def test_keepalive_prints_the_new_end(held: FakePlane) -> None:
    shown, text = client("keepalive", "--ttl", "45s"), client("keepalive", "-o", "text")

    expected = '{\n  "expires_at_iso": "2096-10-02T07:06:40Z",\n  "expires_at_unix": 4000000000\n}\n'
    assert shown.stdout == expected
    assert text.stdout == "expires_at_unix: 4000000000 (2096-10-02T07:06:40Z)\n"
    assert held.at("/v1/keepalive")[0].members()["ttl_seconds"] == 45


def test_update_get_and_release_go_through_the_exported_lease(held: FakePlane) -> None:
    updated = client("update", text='{"n": 1.10}')
    read = client("get")
    released = client("release")
    public = client("get", "--public", "--type", "raw", "-o", "-")

    etag = json.loads(updated.stdout)["etag"]
    assert updated.stdout == f'{{"bytes":11,"etag":"{etag}","version":1}}\n'
    assert read.stdout == '{\n  "n": 1.10\n}\n'
    assert read.stderr == f'{{"bytes":11,"etag":"{etag}","version":"1"}}\n'
    assert released.stdout == '{"released": true}\n'
    assert public.stdout == '{"n": 1.10}'
    assert "x-lease-id" not in held.at("/v1/get")[-1].headers
    assert "x-if-version" not in held.at("/v1/update")[0].headers


def test_text_output_is_one_value_a_line(held: FakePlane) -> None:
    updated = client("update", "--output", "text", text="{}")
    released = client("release", "-o", "text", "--rollback")

    assert [line.split(":")[0] for line in updated.stdout.splitlines()] == ["version", "bytes", "etag"]
    assert released.stdout == "released: true\n"
    assert held.at("/v1/release")[0].members()["rollback"] is True


def test_no_document_is_null(held: FakePlane) -> None:
    result = client("get", "--show-meta")

    assert result.stdout == "null\n"
    assert result.stderr == '{"bytes":0,"version":"0"}\nversion: 0\netag: \n'


def test_yaml_becomes_json_and_back_by_the_name_of_the_file(held: FakePlane, tmp_path: Path) -> None:
    (tmp_path / "in.yaml").write_text("name: é\nlist: [1, two]\n", "utf-8")

    client("update", "in.yaml", "--if-version", "0")
    client("get", "-o", "out.yml")
    client("get", "--file", "out.bin")

    assert held.keys["orders"].staged == '{"name":"é","list":[1,"two"]}'.encode()
    assert held.at("/v1/update")[0].headers["x-if-version"] == "0"
    assert (tmp_path / "out.yml").read_text("utf-8") == "name: é\nlist:\n- 1\n- two\n"
    assert (tmp_path / "out.bin").read_bytes() == held.keys["orders"].staged


def test_mutate_leaves_the_work_to_the_server(held: FakePlane) -> None:
    held.then("/v1/mutate", reply(200, new_version=1, new_state_etag="e", bytes=7, metadata={}))

    result = client("mutate", "/n++", "/a=b,c", "--if-etag", "old")

    request = held.at("/v1/mutate")[0]
    assert request.members() == {"mutations": ["/n++", "/a=b,c"]}
    assert request.headers["x-if-state-etag"] == "old"
    assert result.stdout == '{"bytes":7,"etag":"e","version":1}\n'


@pytest.mark.parametrize("name", ["remove", "delete", "rm"])
def test_remove_has_three_names(held: FakePlane, name: str) -> None:
    held.then("/v1/remove", reply(200, removed=True, new_version=2))

    result = client(name, "--if-version", "1")

    assert result.stdout == '{"removed":true,"version":2}\n'
    assert held.at("/v1/remove")[0].headers["x-if-version"] == "1"


def test_metadata_and_describe(held: FakePlane) -> None:
    held.then("/v1/metadata", reply(200, version=1, metadata={"query_hidden": True}))

    hidden = client("metadata", "--query-hidden")
    described = client("describe", "--output", "text")

    assert hidden.stdout == '{"query_hidden":true,"version":1}\n'
    assert held.at("/v1/metadata")[0].members() == {"query_hidden": True}
    assert "key: orders\nversion: 0\nmetadata: {}\n" in described.stdout


def test_attachments_go_up_and_down(held: FakePlane, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"hello")

    put = client("attachments", "put", "--name", "a.txt", "--file", "a.txt", "--content-type", "text/plain")
    piped = client("attachments", "put", "--name", "b", "--file", "-", "--max-bytes", "0", text=b"piped")
    listed = client("attachments", "list", "--output", "text")
    as_json = client("attachments", "list", "--public")
    got = client("attachments", "get", "--name", "a.txt", "-o", "-")
    client("attachments", "get", "--name", "b", "-o", "copy")
    deleted = client("attachments", "delete", "--name", "b")
    all_deleted = client("attachments", "delete-all")

    attachment = {
        "ID": "id-a.txt",
        "Name": "a.txt",
        "Size": 5,
        "ContentType": "text/plain",
        "CreatedAtUnix": 0,
        "UpdatedAtUnix": 0,
    }
    assert json.loads(put.stdout) == {"Attachment": attachment, "Noop": False, "Version": 1}
    assert piped.exit_code == 0
    assert listed.stdout == "a.txt\t5\tid-a.txt\nb\t5\tid-b\n"
    assert json.loads(as_json.stdout)["Attachments"][0] == attachment
    assert (got.stdout, (tmp_path / "copy").read_bytes()) == ("hello", b"piped")
    assert (deleted.stdout, all_deleted.stdout) == (
        '{"Deleted":true,"Version":1}\n',
        '{"Deleted":1,"Version":1}\n',
    )
    query = held.at("/v1/attachments")[0].query
    assert query == {"key": "orders", "namespace": "default", "name": "a.txt", "content_type": "text/plain"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["get"], "no key"),
        (["get", "-k", "orders"], "no lease"),
        (["release", "-k", "orders", "--lease", "x"], "no fencing token"),
        (["release", "-k", "orders", "--lease", "x", "--fencing-token", "-1"], "no fencing token"),
        (["keepalive", "-k", "o", "--lease", "x", "--fencing-token", "1", "--ttl", "soon"], "soon"),
        (["update", "absent.json", "-k", "o", "--lease", "x", "--fencing-token", "1"], "can't be read"),
        (["get", "-k", "o", "--lease", "x\ny", "--fencing-token", "1"], "control character"),
    ],
)
def test_what_is_missing_is_told_in_one_line(plane: FakePlane, arguments: list[str], message: str) -> None:
    result = client(*arguments)

    assert result.exit_code in {1, 2}
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_an_answer_that_makes_no_sense_is_an_error_and_no_traceback(held: FakePlane) -> None:
    held.then("/v1/keepalive", Reply(200, b"<html>"))

    result = client("keepalive")

    assert (result.exit_code, result.stderr) == (1, "error: status 200 with a body that is no JSON\n")


def test_what_acquire_prints_is_safe_to_evaluate() -> None:
    hostile = 'a"b $(touch pwned) `touch pwned` \\ $HOME !'

    shown = subprocess.run(
        ["sh", "-c", f'export X={shell_quoted(hostile)}; printf %s "$X"'], capture_output=True, check=True
    )

    assert shown.stdout.decode() == hostile
    assert shell_quoted("a\nb\x00é") == '"a\\nb\\x00é"'


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (
            b'{"a":[1,{"b":"x,{}:\\"y"}],"c":{},"d":[]}',
            b'{\n  "a": [\n    1,\n    {\n      "b": "x,{}:\\"y"\n    }\n  ],\n  "c": {},\n  "d": []\n}',
        ),
        (b"1.10", b"1.10"),
        (b'{"a":1,"a":2}', b'{\n  "a": 1,\n  "a": 2\n}'),
    ],
)
def test_pretty_changes_white_space_only(document: bytes, expected: bytes) -> None:
    assert pretty(document) == expected


def test_every_command_has_an_example_and_completion_knows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    names = [
        "acquire",
        "keepalive",
        "release",
        "describe",
        "get",
        "update",
        "mutate",
        "set",
        "edit",
        "remove",
    ]

    for name in [*names, "metadata"]:
        assert "Example" in client(name, "--help").stdout
    completed = CliRunner().invoke(
        app,
        [],
        prog_name="holdfast",
        env={
            "_HOLDFAST_COMPLETE": "complete_bash",
            "COMP_WORDS": "holdfast client acq",
            "COMP_CWORD": "2",
        },
    )

    assert completed.stdout.split() == ["acquire"]
