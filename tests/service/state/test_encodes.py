"""What is done to the bytes of a document on its way from update to readers: each costly step once."""

import hashlib
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast.common.json_text import compact
from holdfast.common.serving.server import ServeOptions, running
from holdfast.gateway.app import create_app
from holdfast.gateway.settings import GatewaySettings
from holdfast.lql.document.value import parse_document
from holdfast.state.layer.index import terms
from holdfast.state.protocol.lockd import documents
from holdfast.storage.tables import Table
from tests.infra.gateway import LOOPBACK, url_of
from tests.wire.lockd.conftest import Wire

SENT = b'{ "name": "one", "tags": ["a", "b"], "n": 17, "text": "%b" }' % (b"x" * 2_000)
COMPACT = b'{"name":"one","tags":["a","b"],"n":17,"text":"%b"}' % (b"x" * 2_000)


@pytest.fixture(params=["mem", "disk"])
async def wire(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Wire]:
    store = "mem://" if request.param == "mem" else f"disk://{tmp_path}"
    app = create_app(GatewaySettings.isolated(store=store, qrf_disabled=True))
    async with (
        running(app, LOOPBACK, options=ServeOptions(drain_grace_s=0)) as server,
        httpx.AsyncClient(base_url=url_of(server), timeout=20) as client,
    ):
        # An index is what documents on disk have anyway.
        asked = {"query": {"preferred_engine": "index", "fallback_engine": "none"}}
        assert (await client.post("/v1/namespace", json=asked)).status_code == 200
        yield Wire(client)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts what is done to these bytes, by whatever module of the product."""
    counted: Counter[str] = Counter()

    def counting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def step(data: bytes = b"", *more: Any, **named: Any) -> Any:
            counted[name] += data in (SENT, COMPACT)
            return function(data, *more, **named)

        return step

    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("holdfast.") and getattr(module, "sha256", None) is hashlib.sha256:
            monkeypatch.setattr(module, "sha256", counting("hashed", hashlib.sha256))
    monkeypatch.setattr(documents, "compact", counting("compacted", compact))
    monkeypatch.setattr(terms, "parse_document", counting("parsed", parse_document))
    put = Table.put

    def counted_put(table: Any, tx: Any, message: Any, *parts: Any, **named: Any) -> None:
        content = getattr(message, "content", None)
        if content is not None and content.inline == COMPACT:
            counted[f"put as {type(message).__name__}"] += 1
        put(table, tx, message, *parts, **named)

    monkeypatch.setattr(Table, "put", counted_put)
    return counted


async def test_a_document_is_compacted_hashed_and_parsed_once_from_update_to_readers(
    wire: Wire, steps: Counter[str]
) -> None:
    lease = await wire.acquire("a")
    assert (await wire.update(lease, SENT)).status_code == 200
    assert steps == {"compacted": 1, "hashed": 1, "put as Stage": 1}

    assert (await wire.release(lease)).status_code == 200
    reads = [(await wire.post("/v1/get", key="a", public=1)).content for _ in range(4)]

    assert reads == [COMPACT] * 4
    # The index parses it; the record that publishes it takes the bytes of the stage as they are.
    assert +steps == {"compacted": 1, "hashed": 1, "parsed": 1, "put as Stage": 1, "put as Document": 1}


async def test_an_update_of_what_was_published_parses_the_new_document_alone(
    wire: Wire, steps: Counter[str]
) -> None:
    lease = await wire.acquire("a")
    assert (await wire.update(lease, SENT)).status_code == 200
    assert (await wire.release(lease)).status_code == 200
    steps.clear()

    for text in (b'{"n":18}', b'{"n":19}'):
        lease = await wire.acquire("a")
        assert (await wire.update(lease, text)).status_code == 200
        assert (await wire.release(lease)).status_code == 200

    assert +steps == Counter()  # What the index has of it is known.
