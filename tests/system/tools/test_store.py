"""`holdfast store` as a real process: what goes in one store comes out of another."""

import asyncio
import base64
import json
import os
import signal
import subprocess
import time
from pathlib import Path

from holdfast.common.security.bundle import read_bundle
from holdfast.storage.codec.keyring import Keyring
from holdfast.storage.keys import pack
from holdfast.storage.opening import open_store
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch
from tests.system.cli import PROGRAM, TIMEOUT_S, environment, holdfast, serving

MARKER = b"a marker that no stored byte may show"
ROOT_KEY = "KRYPT-SYSTEM-ROOT-KEY"
OLD_ROOT_KEY = "HOLDFAST-OLD-ROOT-KEY"


def fill(url: str, bundle: Path | None = None) -> None:
    """A store with a few hundred records, some of several versions, and a blob."""
    keyring = None if bundle is None else Keyring.from_bundle(read_bundle(bundle))

    async def work() -> None:
        async with open_store(url, StoreOptions(keyring=keyring)) as store:
            async with store.blobs.create(context="state:default/blob") as writer:
                await writer.write(MARKER * 10_000)
                ref = await writer.finish()
            key = pack(("doc", "default", "blob"))
            await store.commit(Batch(puts={key: MARKER}, blobs={key: (ref.id,)}))
            for version in range(3):
                puts = {pack(("doc", "default", n)): MARKER + b"%d" % version for n in range(version, 300)}
                await store.commit(Batch(puts=puts))

    asyncio.run(work())


def pem(kind: str, content: bytes) -> str:
    body = base64.b64encode(content).decode()
    return f"-----BEGIN {kind}-----\nKey-Length: {len(content)}\n\n{body}\n-----END {kind}-----\n"


def make_bundle(path: Path, root_key: bytes, *old_keys: bytes) -> Path:
    path.write_text(pem(ROOT_KEY, root_key) + "".join(pem(OLD_ROOT_KEY, key) for key in old_keys))
    return path


def succeed(home: Path, *arguments: str, **variables: str) -> str:
    done = holdfast(home, "store", *arguments, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


def stored_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def test_backups_carry_a_store_from_disk_to_postgres_and_back(tmp_path: Path, postgres_url: str) -> None:
    first, last = f"disk://{tmp_path}/first", f"disk://{tmp_path}/last"
    fill(first)

    wrote = json.loads(succeed(tmp_path, "backup", "one.hfbackup", "--store", first, "--output", "json"))
    succeed(tmp_path, "restore", "one.hfbackup", HOLDFAST_STORE=postgres_url)
    succeed(tmp_path, "backup", "two.hfbackup", HOLDFAST_STORE=postgres_url)
    succeed(tmp_path, "restore", "two.hfbackup", "--store", last)

    exported = succeed(tmp_path, "export", "-", "--store", first)
    assert (wrote["records"], wrote["blobs"], wrote["encrypted"]) == (302, 1, False)
    assert len(exported.splitlines()) == 305
    assert succeed(tmp_path, "export", "-", HOLDFAST_STORE=postgres_url) == exported
    assert succeed(tmp_path, "export", "-", "--store", last) == exported


def test_an_encrypted_store_round_trips_under_its_bundle_and_through_a_rotation(tmp_path: Path) -> None:
    old_key, new_key = os.urandom(32), os.urandom(32)
    first, last = f"disk://{tmp_path}/first", f"disk://{tmp_path}/last"
    bundle = make_bundle(tmp_path / "server.pem", old_key)
    fill(first, bundle)

    succeed(tmp_path, "backup", "all.hfbackup", "--store", first, "--bundle", str(bundle))
    succeed(tmp_path, "restore", "all.hfbackup", "--store", last, "--bundle", str(bundle))
    exported = succeed(tmp_path, "export", "-", "--store", first, "--bundle", str(bundle))
    make_bundle(bundle, new_key, old_key)
    report = succeed(tmp_path, "verify", "--rewrap", "--store", last, "--bundle", str(bundle))
    make_bundle(bundle, new_key)
    after = succeed(tmp_path, "verify", "--store", last, "--bundle", str(bundle))

    assert MARKER not in (tmp_path / "all.hfbackup").read_bytes()
    assert MARKER not in stored_bytes(tmp_path / "last")
    assert base64.b64encode(MARKER).decode().rstrip("=")[:40] in exported
    assert "✔ CryptoMetaStateRoundTrip\n✔ CryptoQueueRoundTrip\n✔ ReadEverything\n" in report
    assert "✔ Rewrap (302 values, 0 needed none)" in report
    assert after.endswith("Storage verification succeeded.\n")


def test_the_wrong_bundle_is_named(tmp_path: Path) -> None:
    store = f"disk://{tmp_path}/store"
    fill(store, make_bundle(tmp_path / "right.pem", os.urandom(32)))
    wrong = make_bundle(tmp_path / "wrong.pem", os.urandom(32))

    ended = holdfast(tmp_path, "store", "export", "-", "--store", store, "--bundle", str(wrong))

    assert ended.returncode == 1
    assert ended.stderr.startswith(f"error: bundle {wrong} does not open the store at {store}")


def test_an_export_goes_through_a_pipe_into_another_store(tmp_path: Path, postgres_url: str) -> None:
    source = f"disk://{tmp_path}/store"
    fill(source)
    exported = succeed(tmp_path, "export", "-", "--store", source)

    first = holdfast(tmp_path, "store", "import", "-", input_text=exported, HOLDFAST_STORE=postgres_url)
    again = holdfast(tmp_path, "store", "import", "-", input_text=exported, HOLDFAST_STORE=postgres_url)

    assert first.stdout.startswith("imported 301 records (0 more were there already) and 1 blob;")
    assert again.stdout.startswith("imported 0 records (301 more were there already)")


def test_a_store_that_a_server_owns_is_left_alone(tmp_path: Path) -> None:
    with serving(tmp_path, "--listen", "127.0.0.1:0") as server:
        refused = holdfast(tmp_path, "store", "backup", "out.hfbackup")
        verified = holdfast(tmp_path, "store", "verify")

        assert refused.returncode == verified.returncode == 1
        assert f"is in use by process {server.process.pid} " in refused.stderr
        assert f"✘ Open: the store {tmp_path}/.local/share/holdfast/store is in use" in verified.stdout
        assert verified.stderr == "error: storage verification failed\n"
        assert server.stop() == 0


def test_a_damaged_backup_touches_nothing(tmp_path: Path) -> None:
    fill(f"disk://{tmp_path}/store")
    succeed(tmp_path, "backup", "all.hfbackup", "--store", f"disk://{tmp_path}/store")
    path = tmp_path / "all.hfbackup"
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)

    ended = holdfast(tmp_path, "store", "restore", str(path), "--store", f"disk://{tmp_path}/new")

    assert ended.returncode == 1
    assert ended.stderr.startswith(f"error: {path} is damaged")
    assert not (tmp_path / "new").exists()


def test_an_interrupted_import_ends_in_order(tmp_path: Path) -> None:
    command = [PROGRAM, "store", "import", "-", "--store", f"disk://{tmp_path}/store"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment(tmp_path),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write('{"holdfast_export":1}\n')
        process.stdin.flush()
        wait_for(tmp_path / "store" / "owner", process)
        process.send_signal(signal.SIGINT)
        status = process.wait(TIMEOUT_S)
        errors = process.stderr.read()

    assert status == 130
    assert errors == "interrupted\n"


def wait_for(path: Path, process: "subprocess.Popen[str]") -> None:
    """Until the process has made this file; the program has no other way to say that it is at work."""
    while not path.exists():
        assert process.poll() is None, "ended before it was interrupted"
        time.sleep(0.01)
