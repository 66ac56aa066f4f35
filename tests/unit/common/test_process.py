"""`python -m` of a service ends with a status and one line per problem."""

from pathlib import Path

import pytest
from fastapi import FastAPI

from holdfast.common.errors import NotReady
from holdfast.common.serving.process import _serve_options, main
from holdfast.common.settings import PlaneSettings


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def app_that_can_not_be_made(settings: PlaneSettings) -> FastAPI:
    raise NotReady("the store is away; start it first")


def test_wrong_settings_are_a_line_each_and_status_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOLDFAST_DEFAULT_TTL", "soon")
    monkeypatch.setenv("HOLDFAST_HA", "maybe")

    status = main(PlaneSettings, app_that_can_not_be_made)

    lines = sorted(capsys.readouterr().err.splitlines())
    assert status == 2
    assert [line.partition(": '")[0] for line in lines] == [
        "error: environment variable HOLDFAST_DEFAULT_TTL",
        "error: environment variable HOLDFAST_HA",
    ]


def test_what_stops_the_start_is_told_with_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(PlaneSettings, app_that_can_not_be_made)

    assert status == 1
    assert capsys.readouterr().err == "error: the store is away; start it first\n"


def test_a_server_runs_as_its_settings_say() -> None:
    settings = PlaneSettings.isolated(express=False, drain_grace_s="3s", shutdown_timeout_s="7s")

    options, plain = _serve_options(settings), _serve_options(PlaneSettings.isolated())

    assert (options.is_express, options.drain_grace_s, options.shutdown_timeout_s) == (False, 3, 7)
    assert (plain.is_express, plain.disable_mtls) == (True, False)


@pytest.mark.parametrize("name", ["mtls_disabled", "open_without_bundle"])
def test_only_who_says_so_serves_every_address_without_tls(name: str) -> None:
    assert _serve_options(PlaneSettings.isolated(**{name: True})).disable_mtls
