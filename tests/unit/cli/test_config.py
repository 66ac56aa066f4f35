"""`holdfast config`, and commands that take every setting as a flag."""

import json
import re
from pathlib import Path

import pytest
import typer
import yaml
from typer.testing import CliRunner, Result

from holdfast.cli.config import GENERATED_KEYS, app
from holdfast.cli.options import Flags, SettingsCommand, settings_options
from holdfast.common.settings import PlaneSettings
from holdfast.leases.settings import LeasesSettings

# fmt: off
PROMISED_ORDER = [
    "listen", "listen-proto", "store", "ha", "ha-lease-ttl", "default-namespace", "json-max",
    "json-util", "payload-spool-mem", "default-ttl", "max-ttl", "acquire-block", "sweeper-interval",
    "txn-replay-interval", "queue-decision-*", "idle-sweep-*", "drain-grace", "shutdown-timeout",
    "disable-mtls", "http2-max-concurrent-streams", "disable-storage-encryption",
    "storage-encryption-snappy", "bundle", "denylist-path", "logstore-*", "disk-lock-file-cache-size",
    "disable-mem-queue-watch", "tc-trust-dir", "tc-disable-auth", "tc-allow-default-ca", "self",
    "tc-join", "tc-fanout-*", "tc-decision-retention", "tc-client-bundle", "s3-*", "aws-*",
    "storage-retry-*", "log-level",
]
# fmt: on

serve_app = typer.Typer()


@serve_app.callback()
def root() -> None:
    """A second command keeps `serve` a command of its own."""


@serve_app.command("serve", cls=SettingsCommand)
@settings_options(PlaneSettings)
def serve(flags: Flags, service: str = typer.Argument("all", help="Which one.")) -> None:
    """Serve the plane."""
    settings = flags.build_for_start(LeasesSettings)
    shown = {key: settings.shown()[key] for key in ("default-ttl", "default-namespace", "express", "tc-join")}
    typer.echo(json.dumps({"service": service, "given": sorted(flags.given), **shown}))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (
        "HOLDFAST_CONFIG",
        "LOCKD_CONFIG",
        "HOLDFAST_CONFIG_DIR",
        "LOCKD_CONFIG_DIR",
        "XDG_DATA_HOME",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def keys_of(text: str) -> list[str]:
    """The keys of a generated file, in the order of its lines."""
    return re.findall(r"^#([a-z0-9-]+): ", text, re.MULTILINE)


def run_serve(*arguments: str) -> Result:
    return CliRunner().invoke(serve_app, ["serve", *arguments])


def test_gen_writes_a_private_file_and_says_where(home: Path) -> None:
    result = run("gen")

    path = home / ".holdfast" / "config.yaml"
    assert (result.exit_code, result.stdout) == (0, f"wrote default config to {path}\n")
    assert path.stat().st_mode & 0o777 == 0o600
    assert yaml.safe_load(path.read_text()) is None, "every line is a comment"
    assert keys_of(path.read_text()) == list(GENERATED_KEYS)


def test_gen_says_which_keys_are_without_effect(home: Path) -> None:
    lines = run("gen", "--stdout").stdout.splitlines()

    assert lines[lines.index("#json-util: lockd") - 1].endswith("Accepted for compatibility, without effect.")
    assert lines[lines.index("#max-ttl: 30m0s") - 1] == "# Longest lease; a longer request is cut to it."


def test_the_generated_keys_are_in_the_promised_order(home: Path) -> None:
    groups = list(dict.fromkeys(_group(key) for key in keys_of(run("gen", "--stdout").stdout)))

    assert groups == PROMISED_ORDER


def _group(key: str) -> str:
    """A key, or the group that the promise names it by."""
    return next((name for name in PROMISED_ORDER if name.endswith("*") and key.startswith(name[:-1])), key)


@pytest.mark.parametrize("service", ["all", "gateway", "leases", "state", "queue", "txn"])
def test_a_generated_file_changes_no_value_and_no_origin(home: Path, service: str) -> None:
    before = run("show", "--service", service, "--output", "json").stdout
    run("gen")

    after = run("show", "--service", service, "--output", "json").stdout

    assert json.loads(after) == json.loads(before)
    assert {row["origin"] for row in json.loads(after)} == {"default"}


@pytest.mark.parametrize("key", GENERATED_KEYS)
def test_every_line_has_effect_when_its_mark_is_removed(home: Path, key: str) -> None:
    """The text of the default is a value that the file takes, and the value that holds without the file."""
    path = home / ".holdfast" / "config.yaml"
    run("gen")
    before = {row["key"]: row for row in json.loads(run("show", "--output", "json").stdout)}
    path.write_text(path.read_text().replace(f"\n#{key}: ", f"\n{key}: "))

    shown = run("show", "--output", "json")

    changed = [row for row in json.loads(shown.stdout) if row != before[row["key"]]]
    is_empty = before[key]["value"] == ""  # An empty value is the default, in every notation.
    assert changed == ([] if is_empty else [{**before[key], "origin": f"file {path}"}])


def test_an_edited_line_is_what_holds(home: Path) -> None:
    path = home / ".holdfast" / "config.yaml"
    run("gen")
    path.write_text(path.read_text().replace("\n#max-ttl: 30m0s", "\nmax-ttl: 2h"))

    settings = PlaneSettings()

    assert (settings.ttl_s_max, settings.origin("ttl_s_max")) == (7200, f"file {path}")


def test_protection_that_is_written_into_the_file_is_asked_for(home: Path) -> None:
    path = home / ".holdfast" / "config.yaml"
    run("gen")
    path.write_text(path.read_text().replace("\n#disable-mtls: false", "\ndisable-mtls: false"))

    result = run_serve()

    assert result.exit_code == 2
    assert "server.pem does not exist, but is needed for mutual TLS" in result.stderr


def test_gen_does_not_overwrite_without_force(home: Path) -> None:
    path = home / "x" / "mine.yaml"
    path.parent.mkdir()
    path.write_text("max-ttl: 1h\n")

    refused = run("gen", "--out", str(path))
    kept = path.read_text()
    forced = run("gen", "--out", str(path), "--force")

    assert (refused.exit_code, kept) == (1, "max-ttl: 1h\n")
    assert "use --force" in refused.stderr
    assert forced.exit_code == 0
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["mine.yaml"]


def test_gen_prints_to_stdout_on_request(home: Path) -> None:
    result = run("gen", "--stdout")

    assert "\n#default-ttl: 30s\n" in result.stdout
    assert not (home / ".holdfast").exists()


def test_stdout_and_out_exclude_each_other(home: Path) -> None:
    result = run("gen", "--stdout", "--out", "x")

    assert result.exit_code == 2
    assert "exclude each other" in result.stderr


def test_gen_says_why_it_cannot_write(home: Path) -> None:
    (home / "file").write_text("")

    result = run("gen", "--out", str(home / "file" / "config.yaml"))
    directory = run("gen", "--out", str(home))

    assert (result.exit_code, directory.exit_code) == (1, 1)
    assert "cannot write" in result.stderr
    assert "is a directory" in directory.stderr


def test_gen_works_although_the_present_file_is_broken(home: Path) -> None:
    (home / ".holdfast").mkdir()
    (home / ".holdfast" / "config.yaml").write_text("zzz: 1\n")

    assert run("gen", "--force").exit_code == 0


def test_show_lists_every_key_with_value_and_origin(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_MAX_TTL", "1h")
    monkeypatch.setenv("HOLDFAST_AZURE_KEY", "hunter2")
    monkeypatch.setenv("HOLDFAST_STORE", "postgres://u:hunter2@h/db")

    result = run("show", "--output", "json")

    rows = {row["key"]: (row["value"], row["origin"]) for row in json.loads(result.stdout)}
    assert rows["max-ttl"] == ("1h0m0s", "env HOLDFAST_MAX_TTL")
    assert rows["default-ttl"] == ("30s", "default")
    assert rows["azure-key"] == ("***", "env HOLDFAST_AZURE_KEY")
    assert rows["store"] == ("postgres://u:***@h/db", "env HOLDFAST_STORE")
    assert len(rows) == len(PlaneSettings.model_fields)


def test_show_prints_a_line_per_key(home: Path) -> None:
    lines = run("show").stdout.splitlines()

    assert len(lines) == len(PlaneSettings.model_fields)
    assert lines[0].split() == ["listen", "127.0.0.1:9341", "default"]


def test_show_takes_a_file_and_a_service(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "x.yaml").write_text("default-ttl: 5s\n")
    monkeypatch.setenv("HOLDFAST_QUEUE_MAX_TTL", "2h")

    rows = json.loads(run("show", "-c", "x.yaml", "--service", "queue", "-o", "json").stdout)

    origins = {row["key"]: row["origin"] for row in rows}
    assert (origins["default-ttl"], origins["max-ttl"]) == ("file x.yaml", "env HOLDFAST_QUEUE_MAX_TTL")


def test_show_says_what_is_wrong(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_MAX_TTL", "soon")

    result = run("show")

    assert result.exit_code == 2
    assert result.stderr.startswith(
        "error: environment variable HOLDFAST_MAX_TTL: 'soon': expected a duration"
    )


def test_a_command_takes_every_flag(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_LEASES_DEFAULT_TTL", "9s")

    result = run_serve("leases", "-n", "blue", "--no-express", "--self", "http://a", "--join", "http://a")

    assert json.loads(result.stdout) == {
        "service": "leases",
        "given": ["express", "join", "namespace_default", "self_endpoint"],
        "default-ttl": "9s",
        "default-namespace": "blue",
        "express": False,
        "tc-join": ["http://a"],
    }


@pytest.mark.parametrize(
    ("argument", "express"), [("--express=false", False), ("--express=TRUE", True), ("--no-express", False)]
)
def test_switches_are_also_taken_the_go_way(home: Path, argument: str, express: bool) -> None:
    assert json.loads(run_serve(argument).stdout)["express"] is express


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--default-ttl", "soon"], "error: flag --default-ttl: 'soon': expected a duration"),
        (["--listen", ":9341"], "server.pem does not exist, but is needed for mutual TLS"),
        (["--config", "nowhere.yaml"], "error: flag --config: config file nowhere.yaml does not exist"),
        (["--express=maybe"], "does not take a value"),
        (["--s3-secret-access-key", "x"], "No such option"),
    ],
)
def test_a_wrong_flag_ends_with_code_2_and_a_message(home: Path, arguments: list[str], message: str) -> None:
    result = run_serve(*arguments)

    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_help_groups_and_describes_every_flag_with_its_default(home: Path) -> None:
    text = run_serve("--help").stdout

    for flag in PlaneSettings.flags().values():
        assert (f"--{flag.name}" in text) is flag.on_command_line, flag.name
    assert all(group in text for group in ("Server", "Leases", "Security", "Back-pressure"))
    assert "Lease time when the client names none. (default: 30s)" in text
