"""An app over a store: readiness follows the store, parts work on it, settings decide how it is opened."""

import base64
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from holdfast.common import failpoint
from holdfast.common.express.router import ExpressRouter
from holdfast.common.security.bundle import InvalidBundle
from holdfast.common.settings import PlaneSettings
from holdfast.storage.codec.compression import Compression
from holdfast.storage.errors import StoreLocked, StoreReadOnly
from holdfast.storage.hosting.configured import store_options
from holdfast.storage.hosting.store_app import build_store_app, store_problem
from holdfast.storage.opening import open_store
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, Store


def settings_for(folder: Path, **flags: object) -> PlaneSettings:
    return PlaneSettings.isolated(store=f"disk://{folder}", **flags)


async def get(app: FastAPI, path: str) -> httpx.Response:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://plane") as client:
        return await client.get(path)


class WatchingPart:
    """Remembers the store it was given, and whether it was still open at the end."""

    routers: Sequence[ExpressRouter] = ()

    def __init__(self) -> None:
        self.store: Store | None = None
        self.ended_before_the_store = False

    @asynccontextmanager
    async def running(self, layers: Store) -> AsyncGenerator[None, None]:
        self.store = layers
        yield
        await layers.check()
        self.ended_before_the_store = True


async def test_the_app_is_ready_once_its_store_is_open(tmp_path: Path) -> None:
    app = build_store_app("leases", settings_for(tmp_path), (), nullcontext, guard=None)

    before = await get(app, "/readyz")
    async with app.router.lifespan_context(app):
        after = await get(app, "/readyz")

    assert (before.status_code, before.json()["reasons"]) == (503, {"store": "not open yet"})
    assert after.status_code == 200


async def test_parts_get_the_store_and_end_before_it_closes(tmp_path: Path) -> None:
    part = WatchingPart()
    app = build_store_app("leases", settings_for(tmp_path), [part], nullcontext, guard=None)

    async with app.router.lifespan_context(app):
        assert part.store is not None

    assert part.ended_before_the_store


async def test_an_error_while_opening_arrives_as_itself(tmp_path: Path) -> None:
    app = build_store_app("leases", settings_for(tmp_path), (), nullcontext, guard=None)

    async with open_store(f"disk://{tmp_path}", StoreOptions()):
        with pytest.raises(StoreLocked, match=str(os.getpid())):
            async with app.router.lifespan_context(app):
                pass


async def test_a_store_that_takes_no_writes_is_a_reason(tmp_path: Path) -> None:
    async with open_store(f"disk://{tmp_path}", StoreOptions(free_bytes_min=0)) as store:
        before = await store_problem(store)
        with failpoint.armed("journal.sync:error"), pytest.raises(StoreReadOnly):
            await store.commit(Batch(puts={b"k": b"v"}))

        assert before is None
        assert "sync" in (await store_problem(store) or "")


async def test_a_closed_store_is_a_reason(tmp_path: Path) -> None:
    async with open_store(f"disk://{tmp_path}", StoreOptions()) as store:
        pass

    assert "closed" in (await store_problem(store) or "")


def test_settings_become_options(tmp_path: Path) -> None:
    settings = settings_for(
        tmp_path,
        history_revisions_max="7",
        history_age_s_max="8s",
        blob_sweep_grace_s="9s",
        blob_free_grace_s="70s",
        redis_url="redis://localhost:1/0",
        postgres_cache_bytes="3MiB",
        logstore_segment_bytes="2MiB",
        logstore_commit_operations_max="10",
    )

    options = store_options(settings)

    assert (options.keyring, options.compression, options.bundle_path) == (None, Compression.NONE, None)
    assert (options.history_revisions_max, options.history_age_s_max) == (7, 8)
    assert (options.blob_sweep_grace_s, options.journal_segment_bytes) == (9, 2 << 20)
    assert options.group_batches_max == 10
    assert options.blob_free_grace_s == 70
    assert options.postgres_cache_bytes_max == 3 << 20
    assert options.redis_url is not None
    assert options.redis_url.get_secret_value() == "redis://localhost:1/0"


def test_a_bundle_turns_encryption_on(tmp_path: Path) -> None:
    bundle = tmp_path / "server.pem"
    kind, body = "KRYPT-SYSTEM-ROOT-KEY", base64.b64encode(os.urandom(32)).decode()
    bundle.write_text(f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----\n")

    sealed = store_options(settings_for(tmp_path, bundle=str(bundle), storage_encryption_snappy=True))
    plain = store_options(settings_for(tmp_path, bundle=str(bundle), storage_encryption_disabled=True))

    assert sealed.keyring is not None and sealed.bundle_path == bundle
    assert sealed.compression is Compression.SNAPPY
    assert plain.keyring is None


def test_a_bundle_that_was_named_and_is_missing_is_no_reason_to_store_in_the_clear(tmp_path: Path) -> None:
    with pytest.raises(InvalidBundle, match="does not exist"):
        store_options(settings_for(tmp_path, bundle=str(tmp_path / "missing.pem")))


def test_a_bundle_without_a_root_key_is_named(tmp_path: Path) -> None:
    bundle = tmp_path / "server.pem"
    bundle.write_text("nothing in it")

    with pytest.raises(InvalidBundle, match="KRYPT-SYSTEM-ROOT-KEY"):
        store_options(settings_for(tmp_path, bundle=str(bundle)))
