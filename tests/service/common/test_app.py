"""What every service answers by itself: health with reasons, version, metrics, docs, and error envelopes."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from holdfast.common.serving import app as app_module
from holdfast.common.serving.app import build_app, parts_of
from holdfast.common.serving.drain import Drain
from holdfast.common.serving.health import Health, package_version
from holdfast.common.serving.listener import Listener
from holdfast.common.serving.server import ServeOptions, running
from tests.service.common.sample import Sample


@asynccontextmanager
async def _client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    async with running(app, Listener("127.0.0.1:0"), options=ServeOptions(drain_grace_s=0)) as server:
        address = server.addresses[0]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{address[1]}") as client:
            yield client


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "DELETE"])
async def test_healthz_and_readyz_are_empty_200_to_any_method(method: str) -> None:
    async with _client(build_app("sample")) as client:
        answers = [await client.request(method, path) for path in ("/healthz", "/readyz")]

    assert [(answer.status_code, answer.content) for answer in answers] == [(200, b"")] * 2


async def test_readyz_names_every_reason() -> None:
    health = Health()

    async def storage() -> str | None:
        return "the store does not answer"

    def broken() -> str | None:
        raise RuntimeError("password=1234")

    health.add("storage", storage)
    health.add("broken", broken)
    health.add("fine", lambda: None)
    async with _client(build_app("sample", health=health)) as client:
        answer = await client.get("/readyz")

    assert answer.status_code == 503
    assert answer.json()["error"] == "not_ready"
    assert answer.json()["reasons"] == {
        "storage": "the store does not answer",
        "broken": "the check failed; the log has the reason",
    }


@pytest.mark.parametrize(("is_unready", "status"), [(True, 503), (False, 200)])
async def test_readyz_knows_of_a_drain_only_when_told_to(is_unready: bool, status: int) -> None:
    drain = Drain()
    health = Health(drain=drain, is_unready_while_draining=is_unready)
    async with _client(build_app("sample", health=health, drain=drain)) as client:
        drain.begin(5)
        answer = await client.get("/readyz")

    assert answer.status_code == status


async def test_version_metrics_and_docs_answer() -> None:
    async with _client(Sample().app()) as client:
        await client.post("/v1/echo", json={"key": "a"})
        await client.get("/nowhere")
        version, metrics, docs = [await client.get(path) for path in ("/version", "/metrics", "/docs")]

    assert version.json()["name"] == "holdfast"
    assert set(version.json()) == {"name", "service", "version", "python", "api"}
    assert 'holdfast_http_requests_total{route="/v1/echo",method="POST",status="200"} 1' in metrics.text
    assert 'holdfast_http_requests_total{route="other",method="GET",status="404"} 1' in metrics.text
    assert "http://" not in docs.text.replace("http://www.w3.org", "")
    assert "https://" not in docs.text
    assert "script-src 'sha256-" in docs.headers["content-security-policy"]


@pytest.mark.parametrize(("reason", "status", "word"), [(None, 200, b"true"), ("it is full", 503, b"false")])
async def test_health_says_in_a_word_of_etcd_what_readyz_says(
    reason: str | None, status: int, word: bytes
) -> None:
    health = Health()
    health.add("storage", lambda: reason)
    async with _client(build_app("sample", health=health)) as client:
        answer, ready = await client.get("/health"), await client.get("/readyz")
        posted = await client.post("/health")
        api = (await client.get("/openapi.json")).json()

    assert (answer.status_code, answer.content) == (status, b'{"health":"%b"}' % word)
    assert answer.headers["content-type"] == "application/json"
    assert ready.status_code == status
    assert (posted.status_code, posted.headers["allow"]) == (405, "GET")
    assert "`/readyz` has the reasons" in api["paths"]["/health"]["get"]["description"]


async def test_openapi_is_made_once_and_not_by_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes half a second for a whole plane, and any client may ask for it."""
    makers: list[threading.Thread] = []

    def recorded(**given: Any) -> dict[str, Any]:
        makers.append(threading.current_thread())
        return get_openapi(**given)

    monkeypatch.setattr(app_module, "get_openapi", recorded)
    async with _client(Sample().app()) as client:
        answers = await asyncio.gather(*(client.get("/openapi.json") for _ in range(8)))

    assert [answer.status_code for answer in answers] == [200] * 8
    assert len({answer.content for answer in answers}) == 1
    assert len(makers) == 1
    assert makers[0] is not threading.current_thread()


async def test_openapi_shows_express_routes_like_any_other() -> None:
    async with _client(Sample().app()) as client:
        api = (await client.get("/openapi.json")).json()

    echo = api["paths"]["/v1/echo"]["post"]
    body = echo["requestBody"]["content"]["application/json"]
    assert body["schema"] == {"$ref": "#/components/schemas/Order"}
    assert body["example"] == {"key": "orders/1", "amount": 2}
    assert {"in": "header", "name": "X-Lease-ID"}.items() <= echo["parameters"][0].items()
    assert set(echo["responses"]) == {"200", "409"}
    assert "X-Key-Version" in echo["responses"]["200"]["headers"]
    assert "`waiting`: Somebody else holds it." in echo["responses"]["409"]["description"]
    assert set(api["paths"]["/v1/find"]) == {"get", "post"}
    assert "HTTPValidationError" not in json.dumps(api)


async def test_unknown_paths_and_methods_have_their_own_answers() -> None:
    async with _client(Sample().app()) as client:
        unknown = await client.get("/v1/nowhere")
        wrong_method = await client.put("/v1/find")

    assert (unknown.status_code, unknown.text) == (404, "404 page not found\n")
    assert unknown.headers["content-type"].startswith("text/plain")
    assert wrong_method.status_code == 405
    assert wrong_method.json()["error"] == "method_not_allowed"
    assert wrong_method.headers["allow"] == "GET, POST"
    assert "x-correlation-id" in unknown.headers


@pytest.mark.parametrize("path", ["/", "/nowhere", "/v2/acquire", "/v10", "/docs/more", "/internal/v1/x"])
async def test_an_unknown_path_outside_of_every_protocol_is_told_where_the_documentation_is(
    path: str,
) -> None:
    async with _client(Sample().app()) as client:
        answer = await client.get(path)

    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {
        "error": "not_found",
        "detail": "nothing is served at this path",
        "docs": "/docs",
        "openapi": "/openapi.json",
        "version": package_version(),
    }


async def test_ordinary_routes_get_the_same_error_envelope() -> None:
    class Body(BaseModel):
        key: str

    app = build_app("sample")

    async def take(body: Body) -> None:
        raise RuntimeError("the secret of the house")

    app.add_api_route("/take", take, methods=["POST"])
    async with _client(app) as client:
        invalid = await client.post("/take", json={"key": 1})
        broken = await client.post("/take", json={"key": "a"})

    assert (invalid.status_code, invalid.json()["error"]) == (400, "invalid_body")
    assert (broken.status_code, broken.json()["error"]) == (500, "internal_error")
    assert "secret" not in broken.text


async def test_an_error_of_the_lifespan_reaches_whoever_starts_the_server() -> None:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        raise RuntimeError("no store")
        yield

    with pytest.raises(RuntimeError, match="no store"):
        async with _client(build_app("sample", lifespan=lifespan)):
            pass


async def test_the_lifespan_ends_after_the_last_answer() -> None:
    events: list[str] = []

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        events.append("begin")
        yield
        events.append("end")

    async with _client(build_app("sample", lifespan=lifespan)) as client:
        await client.get("/healthz")
        events.append("served")

    assert events == ["begin", "served", "end"]
    assert parts_of(build_app("other")).service == "other"
