"""Lists of URLs among the flags of `holdfast serve`: repeated, or with commas."""

import pytest
import typer
from typer.testing import CliRunner

from holdfast.cli.options import Flags, SettingsCommand, settings_options
from holdfast.gateway.settings import GatewaySettings

NAMES = ["peer-leases", "peer-state", "peer-queue", "peer-txn", "join"]


@pytest.mark.parametrize("name", NAMES)
def test_a_list_may_be_repeated_or_have_commas(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[GatewaySettings] = []
    app = typer.Typer()

    @app.command(cls=SettingsCommand)
    @settings_options(GatewaySettings)
    def probe(flags: Flags) -> None:
        read.append(GatewaySettings.isolated(**flags.given))

    words = [f"--{name}", "http://a:1,http://b:1", f"--{name}", "http://c:1", "--self", "http://a:1"]
    result = CliRunner().invoke(app, words)

    assert result.exit_code == 0, result.output
    assert getattr(read[0], name.replace("-", "_")) == ["http://a:1", "http://b:1", "http://c:1"]
