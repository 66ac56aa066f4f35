"""`holdfast serve` before anything is opened: what it refuses, and how it names its addresses."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from holdfast.cli.main import app
from holdfast.cli.serve import url_of


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--max-ttl", "1s"], "max-ttl 1s is below default-ttl 30s"),
        (["--store", "nonsense"], "expected a storage URL"),
        (["--listen", "nonsense"], "expected host:port"),
        (["--listen", "0.0.0.0:0"], "server.pem does not exist"),
        (["--bundle", "/does/not/exist.pem"], "/does/not/exist.pem does not exist"),
        (["--no-such-flag"], "--no-such-flag"),
        (["nonsense"], "nonsense"),
        (["gateway"], "gateway needs --peer-leases"),
        (["leases"], "use --store postgres://"),
        (["state", "--store", "mem://"], "a mem:// store belongs to one process"),
        (["queue", "--store", "postgres://localhost/plane"], "--internal-secret"),
        (
            ["queue", "--store", "postgres://localhost/plane", "--self", "http://127.0.0.1:9345"],
            "queue needs --peer-txn",
        ),
        (["txn", "--store", "postgres://localhost/plane"], "--internal-secret"),
    ],
)
def test_wrong_settings_are_named_and_end_with_status_2(
    flags: list[str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    result = CliRunner().invoke(app, ["serve", *flags])

    assert result.exit_code == 2
    assert problem in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("address", "is_tls", "url"),
    [
        (("127.0.0.1", 9341), False, "http://127.0.0.1:9341"),
        (("::1", 9341), True, "https://[::1]:9341"),
        ("/run/plane.sock", False, "unix:///run/plane.sock"),
    ],
)
def test_an_address_is_shown_as_a_client_names_it(
    address: tuple[str, int] | str, is_tls: bool, url: str
) -> None:
    assert url_of(address, is_tls=is_tls) == url
