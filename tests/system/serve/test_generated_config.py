"""A config file that `holdfast config gen` wrote and that was not edited: every command behaves as without it."""

import os
import re
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.infra.program import free_port
from tests.system.cli import TIMEOUT_S, holdfast, serving

ANY_PORT = ("--listen", "127.0.0.1:0")
SERVICES = ("leases", "state", "queue", "txn")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A generated file, with `{home}` where it names the home it was written in."""
    home = tmp_path_factory.mktemp("generating")
    written = holdfast(home, "config", "gen")
    assert written.returncode == 0, written.stderr
    return (home / ".holdfast" / "config.yaml").read_text("utf-8").replace(str(home), "{home}")


@pytest.fixture
def homes(tmp_path: Path, config: str) -> tuple[Path, Path]:
    """A home without a config file, and one with a generated file."""
    plain, generated = tmp_path / "plain", tmp_path / "generated"
    plain.mkdir()
    (generated / ".holdfast").mkdir(parents=True)
    (generated / ".holdfast" / "config.yaml").write_text(config.replace("{home}", str(generated)), "utf-8")
    return plain, generated


def told(home: Path, *arguments: str, **variables: str) -> tuple[int, str, str]:
    """Status and output of a command, without what differs from home to home and from run to run."""
    done = holdfast(home, *arguments, **variables)
    return done.returncode, _plain(home, done.stdout), _plain(home, done.stderr)


def _plain(home: Path, text: str) -> str:
    return re.sub(r"\d+(\.\d+)?", "N", text.replace(str(home), "HOME"))


def test_the_plane_starts_as_make_serve_runs_it(homes: tuple[Path, Path]) -> None:
    announcements: list[str] = []
    for home in homes:
        # `make serve` gives no flag at all; the port differs here so that two servers never meet.
        with serving(home, *ANY_PORT) as server:
            assert httpx.get(f"{server.url}/readyz", timeout=TIMEOUT_S).status_code == 200
            announcements.append(_plain(home, server.announcement))
            assert server.stop() == 0

    assert announcements[0] == announcements[1]


def test_a_store_is_tended(homes: tuple[Path, Path]) -> None:
    for home in homes:
        with serving(home, *ANY_PORT) as server:
            assert server.stop() == 0

    for command in (["backup", "now.hfbackup"], ["verify"], ["sweep"], ["compact"], ["export", "all.ndjson"]):
        plain, generated = (told(home, "store", *command) for home in homes)
        assert plain == generated, command
        assert plain[0] == 0, plain


@pytest.mark.parametrize(
    "role",
    [
        "gateway",
        "leases",
        *(pytest.param(role, marks=pytest.mark.long) for role in SERVICES if role != "leases"),
    ],
)
def test_a_service_asks_for_the_same_things(role: str, homes: tuple[Path, Path]) -> None:
    plain, generated = (told(home, "serve", role, *ANY_PORT) for home in homes)

    assert plain == generated
    assert plain[0] == 2
    assert "does not exist" not in plain[2]


def test_the_gateway_starts(homes: tuple[Path, Path]) -> None:
    peers = [
        word for service in SERVICES for word in (f"--peer-{service}", f"http://127.0.0.1:{free_port()}")
    ]
    for home in homes:
        with serving(home, "gateway", *ANY_PORT, "--internal-secret", "s" * 32, *peers) as server:
            assert httpx.get(f"{server.url}/healthz", timeout=TIMEOUT_S).status_code == 200


def test_the_address_of_the_network_still_needs_a_bundle(homes: tuple[Path, Path]) -> None:
    plain, generated = (told(home, "serve", "--listen", "0.0.0.0:0") for home in homes)

    assert plain == generated
    assert plain[0] == 2
    assert "server.pem does not exist, but is needed for mutual TLS" in plain[2]


def test_a_file_that_is_edited_has_effect(homes: tuple[Path, Path]) -> None:
    path = homes[1] / ".holdfast" / "config.yaml"
    path.write_text(re.sub(r"^#listen: .*$", "listen: 127.0.0.1:0", path.read_text(), flags=re.MULTILINE))
    path.write_text(re.sub(r"^#store: .*$", "store: mem://", path.read_text(), flags=re.MULTILINE))

    with serving(homes[1]) as server:
        assert server.announcement.endswith(" on mem://\n")


def test_make_serve_gives_no_flags_of_its_own() -> None:
    printed = subprocess.run(
        ["make", "-n", "--no-print-directory", "serve"],
        cwd=Path(__file__).parents[3],
        env={"PATH": os.environ["PATH"]},  # Not the ARGS of the `make test` that runs this.
        capture_output=True,
        text=True,
        check=True,
    )

    assert printed.stdout.splitlines()[-1].split("exec ")[-1].split() == [".venv/bin/holdfast", "serve"]
