"""`holdfast store` in one process: where the store comes from, what is printed, what is refused."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.cli import progress
from holdfast.common.clock import FakeClock
from holdfast.storage.opening import open_store
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch
from tests.infra.invocation import Invoke
from tests.system.tools.test_store import make_bundle


@pytest.fixture
def url(home: Path) -> str:
    """A store with two records and a blob."""
    url = f"disk://{home}/data"

    async def fill() -> None:
        async with open_store(url, StoreOptions()) as opened:
            async with opened.blobs.create() as writer:
                await writer.write(b"content")
                ref = await writer.finish()
            await opened.commit(Batch(puts={b"a": b"1", b"b": b"2"}, blobs={b"a": (ref.id,)}))

    asyncio.run(fill())
    return url


def test_a_backup_tells_what_it_holds(invoke: Invoke, url: str, home: Path) -> None:
    as_text = invoke("backup", "one", "--store", url)
    as_json = invoke("backup", "two", "--store", url, "--output", "json")

    assert as_text.stdout == "wrote one: 3 records, 1 blob (7B), revision 2\n"
    assert json.loads(as_json.stdout) == {
        "path": "two",
        "revision": 2,
        "records": 3,
        "blobs": 1,
        "blob_bytes": 7,
        "encrypted": False,
    }


@pytest.mark.parametrize("way", ["flag", "environment", "file"])
def test_the_store_is_found_like_the_servers(
    way: str, invoke: Invoke, url: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["export", "-"]
    if way == "flag":
        arguments += ["--store", url]
    elif way == "environment":
        monkeypatch.setenv("HOLDFAST_STORE", url)
    else:
        (home / "config.yaml").write_text(f"store: {url}\n")
        arguments += ["--config", "config.yaml"]

    result = invoke(*arguments)

    assert result.exit_code == 0, result.stderr
    assert len(result.stdout.splitlines()) == 6


@pytest.mark.parametrize(
    "command", [("backup", "x"), ("export", "-"), ("sweep",), ("compact",), ("verify",)], ids=" ".join
)
def test_a_store_that_is_not_there_is_not_made(command: tuple[str, ...], invoke: Invoke, home: Path) -> None:
    result = invoke(*command)

    assert result.exit_code == 1
    assert "there is no store at" in result.output
    assert list(home.iterdir()) == []


def test_verify_reports_as_text(invoke: Invoke, url: str) -> None:
    result = invoke("verify", "--store", url)

    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert lines[:4] == [f"Store: {url}", "Provider: disk", "", "✔ Open"]
    assert all(line.startswith("✔ ") for line in lines[3:-1])
    assert lines[-1] == "Storage verification succeeded."


def test_verify_reports_as_json(invoke: Invoke, url: str) -> None:
    report = json.loads(invoke("verify", "--store", url, "--output", "json").stdout)

    assert (report["store"], report["provider"], report["ok"]) == (url, "disk", True)
    assert {"name": "Cleanup", "ok": True, "error": None} in report["checks"]


def test_verify_of_a_damaged_store_fails(invoke: Invoke, url: str, home: Path) -> None:
    blob = next(path for path in (home / "data" / "blobs").rglob("*-*") if path.is_file())
    blob.write_bytes(blob.read_bytes()[:-1])

    result = invoke("verify", "--store", url)

    assert result.exit_code == 1
    assert "✘ ReadEverything: 1 records or their blobs can't be read" in result.stdout
    assert "succeeded" not in result.stdout
    assert result.stderr == "error: storage verification failed\n"


def test_a_plain_store_has_nothing_to_rewrap(invoke: Invoke, url: str) -> None:
    result = invoke("verify", "--rewrap", "--store", url)

    assert result.exit_code == 1
    assert "✘ Rewrap: the store is not encrypted" in result.stdout


def test_a_password_is_not_shown(invoke: Invoke) -> None:
    result = invoke("verify", "--store", "postgres://me:secret@127.0.0.1:1/db?schema=NO")

    assert result.exit_code == 1
    assert "secret" not in result.output


def test_an_export_to_a_file_is_private_and_never_overwrites(invoke: Invoke, url: str, home: Path) -> None:
    first = invoke("export", "all.jsonl", "--store", url)
    second = invoke("export", "all.jsonl", "--store", url)

    assert (first.exit_code, second.exit_code) == (0, 1)
    assert first.stdout == "wrote all.jsonl: 6 lines\n"
    assert (home / "all.jsonl").stat().st_mode & 0o777 == 0o600
    assert second.stderr == "error: all.jsonl exists; name a new file (invalid_archive)\n"


def test_an_import_refuses_other_values_unless_told(invoke: Invoke, url: str, home: Path) -> None:
    invoke("export", "all.jsonl", "--store", url)
    lines = (home / "all.jsonl").read_text()
    (home / "all.jsonl").write_text(lines.replace('"value":"Mg=="', '"value":"Mw=="'))

    refused = invoke("import", "all.jsonl", "--store", url)
    taken = invoke("import", "all.jsonl", "--store", url, "--overwrite", "--output", "json")

    assert refused.exit_code == 1
    assert "exists with another value; use --overwrite" in refused.stderr
    assert json.loads(taken.stdout) == {"records": 1, "unchanged": 1, "blobs": 1, "revision": 3}


def test_a_missing_file_is_named(invoke: Invoke, url: str) -> None:
    imported = invoke("import", "nowhere.jsonl", "--store", url)
    restored = invoke("restore", "nowhere.hfbackup", "--store", url)

    assert imported.stderr.startswith("error: reading nowhere.jsonl: No such file")
    assert restored.stderr.startswith("error: opening the backup nowhere.hfbackup: No such file")
    assert (imported.exit_code, restored.exit_code) == (1, 1)


def test_a_restore_needs_an_empty_store(invoke: Invoke, url: str) -> None:
    invoke("backup", "all.hfbackup", "--store", url)

    result = invoke("restore", "all.hfbackup", "--store", url)

    assert result.exit_code == 1
    assert "is not empty" in result.stderr


def test_a_bundle_that_is_named_must_exist(invoke: Invoke, url: str) -> None:
    result = invoke("export", "-", "--store", url, "--bundle", "nowhere.pem")

    assert result.exit_code == 1
    assert result.stderr.startswith("error: bundle nowhere.pem: does not exist")


def test_sweep_and_compact_tell_what_they_did(invoke: Invoke, url: str) -> None:
    sweep = invoke("sweep", "--grace", "0s", "--store", url, "--output", "json")
    compact = invoke("compact", "--store", url)
    wrong = invoke("sweep", "--grace", "soon", "--store", url)

    assert json.loads(sweep.stdout) == {"removed": 0}
    assert compact.stdout == "a watch may now start after revision 0\n"
    assert wrong.exit_code == 2


def test_compact_drops_the_history_beyond_the_configured_bounds(
    invoke: Invoke, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_HISTORY_REVISIONS", "0")

    result = invoke("compact", "--store", url)

    assert result.stdout == "a watch may now start after revision 2\n"


def test_a_sweep_spares_blobs_that_are_younger_than_its_grace(invoke: Invoke, url: str) -> None:
    async def lose_a_blob() -> None:
        async with open_store(url, StoreOptions()) as opened, opened.blobs.create() as writer:
            await writer.write(b"lost")
            await writer.finish()

    asyncio.run(lose_a_blob())

    spared = invoke("sweep", "--grace", "1h", "--store", url, "--output", "json")
    by_default = invoke("sweep", "--store", url, "--output", "json")
    swept = invoke("sweep", "--grace", "0s", "--store", url, "--output", "json")

    removed = [json.loads(result.stdout)["removed"] for result in (spared, by_default, swept)]
    assert removed == [0, 0, 1]


def test_a_plain_store_beside_a_bundle_is_opened_when_told_so(invoke: Invoke, url: str, home: Path) -> None:
    bundle = make_bundle(home / "server.pem", os.urandom(32))
    arguments = ["export", "-", "--store", url, "--bundle", str(bundle)]

    refused = invoke(*arguments)
    opened = invoke(*arguments, "--disable-storage-encryption")

    assert refused.exit_code == 1
    assert (opened.exit_code, len(opened.stdout.splitlines())) == (0, 6)


def test_migrate_takes_the_store_of_the_settings(
    invoke: Invoke, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_STORE", postgres_url)

    result = invoke("migrate", "--dry-run")

    assert "-- would apply 0001" in result.stdout


def test_progress_without_a_terminal_is_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    clock = FakeClock()
    advance = progress.ProgressLines("backup", 10, clock)

    for pause_s in (1, 4, 4):
        clock.advance(pause_s)
        advance(1, 500)

    captured = capsys.readouterr()
    assert captured.err == "backup: 2 of 10 records, 1kB\n"
    assert captured.out == ""


def test_progress_on_a_terminal_is_a_bar_on_stderr(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    with progress.progress("backup", 10) as advance:
        advance(10, 500)

    captured = capsys.readouterr()
    assert "backup" in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    ("arguments", "stream"), [(["export", "-"], "standard output"), (["import", "-"], "standard input")]
)
def test_a_closed_standard_stream_is_an_error_that_says_so(
    arguments: list[str], stream: str, url: str, home: Path
) -> None:
    program = [str(Path(sys.executable).with_name("holdfast")), "store", *arguments, "--store", url]

    ended = subprocess.run(
        ["sh", "-c", '"$@" <&- >&-', "sh", *program], stderr=subprocess.PIPE, text=True, check=False
    )

    assert (ended.returncode, ended.stderr) == (
        1,
        f"error: {stream} is closed; name a file\n",
    )


def test_a_folder_name_that_no_system_takes_is_refused(invoke: Invoke, home: Path) -> None:
    (home / "lines").write_text("")

    result = invoke("import", "lines", "--store", f"disk://{home}/a%00b")

    assert (result.exit_code, "(invalid_store_url)" in result.stderr) == (1, True)
