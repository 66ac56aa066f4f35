"""`holdfast tc`: what it sends, prints and keeps in the trust directory."""

import json
import os
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from holdfast.cli.main import app
from holdfast.common.security.trust import read_trust
from tests.infra.fake_plane import FakePlane, reply
from tests.infra.program import free_port
from tests.service.common.certificates import Authority, pem

A, B = "https://a:9341", "https://b:9341"


def tc(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["tc", *arguments])


def test_members_are_listed_one_on_each_line(plane: FakePlane) -> None:
    plane.then("/v1/tc/cluster/list", *[reply(200, endpoints=[A, B], updated_at_unix=5)] * 2)

    as_text = tc("list")
    as_json = tc("list", "-o", "json")

    assert as_text.stdout == f"{A}\n{B}\n"
    assert json.loads(as_json.stdout) == {"endpoints": [A, B], "updated_at_unix": 5}
    assert plane.at("/v1/tc/cluster/list")[0].method == "GET"


def test_an_empty_cluster_prints_nothing(plane: FakePlane) -> None:
    plane.then("/v1/tc/cluster/list", reply(200, endpoints=[]))

    result = tc("list")

    assert (result.exit_code, result.stdout) == (0, "")


@pytest.mark.parametrize("command", ["announce", "join"])
def test_a_node_is_announced(plane: FakePlane, command: str) -> None:
    plane.then("/v1/tc/cluster/announce", reply(200, endpoints=[A], updated_at_unix=5, expires_at_unix=6))

    result = tc(command, "--self", A)

    assert result.stdout == f"{A}\n"
    assert plane.at("/v1/tc/cluster/announce")[0].members() == {"self_endpoint": A}


def test_a_node_leaves(plane: FakePlane) -> None:
    plane.then("/v1/tc/cluster/leave", reply(200, endpoints=[B], updated_at_unix=5))

    assert tc("leave").stdout == f"{B}\n"
    assert plane.at("/v1/tc/cluster/leave")[0].members() == {}


def test_a_refusal_ends_with_its_code(plane: FakePlane) -> None:
    plane.then("/v1/tc/cluster/leave", reply(403, error="tc_cluster_identity_missing", detail="no identity"))

    result = tc("leave")

    assert (result.exit_code, result.stderr) == (1, "error: tc_cluster_identity_missing (no identity)\n")


def test_the_first_node_that_answers_counts(plane: FakePlane) -> None:
    plane.then("/v1/tc/cluster/list", reply(200, endpoints=[A]))
    url = os.environ["HOLDFAST_CLIENT_SERVER"]
    dead = f"http://127.0.0.1:{free_port()}"

    assert tc("list", "--endpoint", f"{dead},{url}").stdout == f"{A}\n"

    silent = tc("list", "--endpoint", dead)
    assert silent.exit_code == 1
    assert "no node can be reached" in silent.stderr


def test_status_asks_every_member_and_says_whether_they_agree(plane: FakePlane) -> None:
    url = os.environ["HOLDFAST_CLIENT_SERVER"]
    followed = reply(200, leader_id="a", leader_endpoint=url, term=3, expires_at=9)
    plane.then("/v1/tc/cluster/list", *[reply(200, endpoints=[url])] * 2)
    plane.then("/v1/tc/leader", followed, reply(503, error="tc_unavailable", detail="no peers"))

    agreed = tc("status")
    leaderless = tc("status", "-o", "json")

    assert agreed.exit_code == 0
    assert agreed.stdout.splitlines()[1].split() == [url, "itself", "3"]
    assert leaderless.exit_code == 1
    members = json.loads(leaderless.stdout)
    assert members["has_leader"] is False
    assert members["nodes"][0]["problem"] == "tc_unavailable"


def test_a_ca_is_exported_added_and_listed(home: Path) -> None:
    authority = Authority()
    (home / "server.pem").write_bytes(authority.bundle("server"))

    exported = tc("ca-export", "--bundle", str(home / "server.pem"), "--out", str(home / "ca.pem"))
    printed = tc("ca-export", "--bundle", str(home / "server.pem"))
    added = [tc("trust", "add", "--ca", str(home / "ca.pem")) for _ in range(2)]
    listed = tc("trust", "list", "-o", "json")

    assert (exported.exit_code, (home / "ca.pem").read_bytes()) == (0, pem(authority.certificate))
    assert printed.stdout.encode() == pem(authority.certificate)
    [path] = (home / ".holdfast" / "tc-trust.d").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert added[1].stdout == f"trusted ca written to {path}\n"
    assert read_trust(path.parent) == (authority.certificate,)
    assert [one["file"] for one in json.loads(listed.stdout)["authorities"]] == [path.name]


def test_what_is_no_ca_is_not_trusted(home: Path) -> None:
    (home / "nothing.pem").write_text("nothing\n")

    result = tc("trust", "add", "--ca", str(home / "nothing.pem"))

    assert result.exit_code == 1
    assert "holds no CA certificate" in result.stderr
    assert not (home / ".holdfast" / "tc-trust.d").exists()


def test_without_a_ca_the_list_says_so(home: Path) -> None:
    assert tc("trust", "list").stdout == f"no CA in {home / '.holdfast' / 'tc-trust.d'}\n"


def test_a_call_over_tls_needs_a_bundle(home: Path) -> None:
    result = tc("list", "--endpoint", "https://127.0.0.1:1")

    assert result.exit_code == 1
    assert "no TC client bundle" in result.stderr


@pytest.mark.parametrize(
    "command", [["announce", "--self", A], ["join", "--self", A], ["leave"]], ids=" ".join
)
def test_a_node_shows_its_server_bundle(home: Path, command: list[str]) -> None:
    (home / "named.pem").write_text("no bundle")
    (home / ".holdfast").mkdir()
    (home / ".holdfast" / "server.pem").write_text("no bundle either")
    nowhere = ["--endpoint", f"https://127.0.0.1:{free_port()}"]

    named = tc(*command, *nowhere, "--server-bundle", str(home / "named.pem"))
    own = tc(*command, *nowhere)

    assert (named.exit_code, own.exit_code) == (1, 1)
    assert str(home / "named.pem") in named.stderr
    assert str(home / ".holdfast" / "server.pem") in own.stderr


def test_trust_is_kept_in_the_folder_of_the_option_else_of_the_server(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_TC_TRUST_DIR", str(home / "of-server"))
    (home / "ca.pem").write_bytes(pem(Authority().certificate))

    tc("trust", "add", "--ca", str(home / "ca.pem"))
    tc("trust", "add", "--ca", str(home / "ca.pem"), "--trust-dir", str(home / "named"))
    listed = [
        json.loads(tc("trust", "list", "-o", "json", *option).stdout)["authorities"]
        for option in ([], ["--trust-dir", str(home / "named")], ["--trust-dir", str(home / "empty")])
    ]

    assert [len(read_trust(home / name)) for name in ("of-server", "named")] == [1, 1]
    assert [len(found) for found in listed] == [1, 1, 0]


def test_the_tc_client_bundle_of_the_config_directory_is_found(home: Path) -> None:
    (home / ".holdfast").mkdir(exist_ok=True)
    (home / ".holdfast" / "tc-client-one.pem").write_bytes(Authority().bundle("client"))

    result = tc("list", "--endpoint", f"https://127.0.0.1:{free_port()}")

    assert (result.exit_code, "no node can be reached" in result.stderr) == (1, True)
