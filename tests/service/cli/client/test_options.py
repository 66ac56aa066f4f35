"""The options of `holdfast client`: where each one stands in the request, and what it changes in the result."""

import os
import socket
from pathlib import Path

import pytest

from tests.infra.fake_plane import FakePlane, Reply, reply
from tests.infra.invocation import client

WRITTEN = reply(200, new_version=1, new_state_etag="e", bytes=7, metadata={})
QUERIED = reply(200, keys=["a"])
SENT: dict[str, tuple[list[str], str, Reply | None, dict[str, object]]] = {
    # What is called, where it goes, how it is answered, and the members, parameters and headers that go along.
    "key": (["acquire", "--key", "job"], "/v1/acquire", None, {"key": "job"}),
    "no key": (["acquire"], "/v1/acquire", None, {"key": ""}),
    "ttl": (["acquire", "--ttl", "90s"], "/v1/acquire", None, {"ttl_seconds": 90}),
    "owner": (["acquire", "--owner", "me"], "/v1/acquire", None, {"owner": "me"}),
    "no owner": (["acquire"], "/v1/acquire", None, {"owner": f"{socket.gethostname()}-{os.getpid()}"}),
    "if-not-exists": (["acquire", "--if-not-exists"], "/v1/acquire", None, {"if_not_exists": True}),
    "query limit": (["query", "--limit", "7", ""], "/v1/query", QUERIED, {"limit": 7}),
    "query refresh": (["query", "--refresh", "wait_for", ""], "/v1/query", QUERIED, {"refresh": "wait_for"}),
}
CONDITIONAL: dict[str, tuple[list[str], str, Reply]] = {
    "update": (["update", "document.json"], "/v1/update", WRITTEN),
    "mutate": (["mutate", "/n++"], "/v1/mutate", WRITTEN),
    "set": (["set", "/n++"], "/v1/mutate", WRITTEN),
    "remove": (["remove"], "/v1/remove", reply(200, removed=True, new_version=2)),
}


@pytest.mark.parametrize("case", SENT)
def test_an_option_goes_into_the_request(plane: FakePlane, case: str) -> None:
    arguments, path, answer, expected = SENT[case]
    if answer is not None:
        plane.then(path, answer)

    result = client(*arguments)

    assert result.exit_code == 0, result.output
    (request,) = plane.at(path)
    told = {**request.headers, **request.query, **request.members()}
    assert {name: told.get(name) for name in expected} == expected


@pytest.mark.parametrize("command", CONDITIONAL)
def test_a_write_names_the_version_and_the_etag_it_insists_on(
    held: FakePlane, command: str, tmp_path: Path
) -> None:
    (tmp_path / "document.json").write_text("{}")
    arguments, path, answer = CONDITIONAL[command]
    held.then(path, answer)

    result = client(*arguments, "--if-version", "3", "--if-etag", "abc")

    assert result.exit_code == 0, result.output
    (request,) = held.at(path)
    assert (request.headers["x-if-version"], request.headers["x-if-state-etag"]) == ("3", "abc")


@pytest.mark.parametrize(("retries", "asked"), [(0, 1), (1, 2)])
def test_an_acquire_is_repeated_so_often_when_no_server_answers(
    plane: FakePlane, retries: int, asked: int
) -> None:
    plane.then("/v1/acquire", *[Reply(0)] * 10)

    result = client("acquire", "-k", "job", "--retries", str(retries), "--block", "30s")

    assert result.exit_code == 1
    assert len(plane.at("/v1/acquire")) == asked


def test_the_options_of_a_lease_win_over_what_acquire_exported(held: FakePlane) -> None:
    options = ["--key", "other", "--lease", "l", "--fencing-token", "7", "--txn-id", "t", "-n", "shop"]
    held.then("/v1/keepalive", reply(200, expires_at_unix=1))
    held.then("/v1/update", WRITTEN)

    client("keepalive", "--ttl", "45s", *options)
    client("update", *options, text="{}")

    (kept,), (updated,) = held.at("/v1/keepalive"), held.at("/v1/update")
    asked = kept.members()
    assert {name: asked[name] for name in ("namespace", "key", "lease_id", "txn_id", "ttl_seconds")} == {
        "namespace": "shop",
        "key": "other",
        "lease_id": "l",
        "txn_id": "t",
        "ttl_seconds": 45,
    }
    assert kept.headers["x-fencing-token"] == "7"
    assert updated.query == {"key": "other", "namespace": "shop"}
    assert [updated.headers[name] for name in ("x-lease-id", "x-txn-id", "x-fencing-token")] == [
        "l",
        "t",
        "7",
    ]


def test_a_rollback_forgets_what_was_staged(held: FakePlane) -> None:
    client("update", text='{"n":1}')

    client("release", "--rollback")

    assert (held.keys["orders"].document, held.keys["orders"].holder) == (None, None)


def test_public_reads_show_what_is_committed_and_need_no_lease(
    held: FakePlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    client("update", text='{"n":1}')
    client("attachments", "put", "--name", "a", "--file", "-", text="content")
    before = client("get", "--public").stdout
    client("release")
    for name in ("LEASE", "FENCING_TOKEN", "TXN_ID"):
        monkeypatch.delenv(f"HOLDFAST_CLIENT_{name}")

    after = client("get", "--public", "--type", "raw").stdout
    file = client("attachments", "get", "--name", "a", "--public")
    listed = client("attachments", "list", "--public", "-o", "text")

    assert (before, after, file.stdout, listed.stdout) == ("null\n", '{"n":1}', "content", "a\t7\tid-a\n")
    assert client("get").exit_code == 1
    public = [*held.at("/v1/attachment"), held.at("/v1/attachments")[-1]]
    assert [(request.query.get("public"), "x-lease-id" in request.headers) for request in public] == [
        ("1", False)
    ] * 2


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("auto", '{\n  "n": 1.10\n}\n'),
        ("json", '{\n  "n": 1.10\n}\n'),
        ("raw", '{"n": 1.10}'),
        ("yaml", "n: 1.1\n"),
    ],
)
def test_a_document_is_written_down_as_asked(held: FakePlane, kind: str, shown: str, tmp_path: Path) -> None:
    client("update", text='{"n": 1.10}')

    printed = client("get", "--type", kind)
    client("get", "--type", kind, "--file", "file")

    assert printed.stdout == shown
    assert (tmp_path / "file").read_text() == (shown if kind != "auto" else '{"n": 1.10}')


def test_meta_is_told_on_stderr_when_asked_for(held: FakePlane) -> None:
    client("update", text="{}")

    plain, with_meta = client("get"), client("get", "--show-meta")

    assert plain.stdout == with_meta.stdout
    added = with_meta.stderr.removeprefix(plain.stderr)
    assert added.startswith("version: 1\netag: ")
    assert len(added.splitlines()[1]) > len("etag: ")


def test_an_attachment_option_goes_into_the_request(held: FakePlane) -> None:
    client(
        "attachments",
        "put",
        "--name",
        "a",
        "--file",
        "-",
        "--max-bytes",
        "9",
        "--prevent-overwrite",
        text="x",
    )
    client("attachments", "put", "--name", "a", "--file", "-", "--max-bytes", "0", text="x")
    client("attachments", "get", "--id", "0197")
    client("attachments", "delete", "--id", "0197")

    limited, unlimited = (request.query for request in held.at("/v1/attachments"))
    assert (limited["max_bytes"], limited["prevent_overwrite"]) == ("9", "1")
    assert (unlimited["max_bytes"], "prevent_overwrite" in unlimited) == ("0", False)
    assert [request.query["id"] for request in held.at("/v1/attachment")] == ["0197", "0197"]
    assert all("name" not in request.query for request in held.at("/v1/attachment"))
