"""Probes and self-description: `/healthz`, `/readyz` with reasons, `/health`, `/version`, `/metrics`, `/docs`."""

import asyncio
import platform
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import Final

from fastapi.routing import APIRoute
from pydantic_core import to_json
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from holdfast.common.errors import NotReady
from holdfast.common.express.asgi import send_answer
from holdfast.common.express.cycle import CORRELATION_ID
from holdfast.common.express.message import JSON_HEADERS, Answer, Header, json_answer
from holdfast.common.logging import get_logger
from holdfast.common.serving.drain import Drain
from holdfast.common.telemetry.metrics import Registry

Check = Callable[[], Awaitable[str | None] | str | None]
"""None when all is well, else the reason why not."""

API_VERSION: Final = "v1"
VERSION_PATH: Final = "/version"
_CHECK_TIMEOUT_S: Final = 2.0
_METRICS_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"

_log = get_logger("api.http.router.readyz")


class Health:
    """Named checks; the server is ready when each of them finds nothing."""

    def __init__(self, *, drain: Drain | None = None, is_unready_while_draining: bool = False) -> None:
        self._checks: dict[str, Check] = {}
        self._notes: dict[str, Callable[[], str]] = {}
        if drain is not None and is_unready_while_draining:
            self.add("drain", lambda: "the server is draining" if drain.is_draining else None)

    def add(self, name: str, check: Check) -> None:
        """Ask this check too; a second one of the same name takes the place of the first."""
        self._checks[name] = check

    def note(self, name: str, tell: Callable[[], str]) -> None:
        """Tell this too, ready or not: as a header, because the body of a ready answer is empty."""
        self._notes[name] = tell

    def headers(self) -> list[Header]:
        return [(f"x-{name}".encode(), tell().encode()) for name, tell in self._notes.items()]

    async def reasons(self) -> dict[str, str]:
        """Why the server is not ready, by name of the check; empty when it is."""
        names = list(self._checks)
        found = await asyncio.gather(*(_ask(name, self._checks[name]) for name in names))
        return {name: reason for name, reason in zip(names, found, strict=True) if reason}


async def _ask(name: str, check: Check) -> str | None:
    try:
        result = check()
        if isinstance(result, str) or result is None:
            return result
        async with asyncio.timeout(_CHECK_TIMEOUT_S):
            return await result
    except TimeoutError:
        return f"no answer within {_CHECK_TIMEOUT_S:g} s"
    except Exception as error:  # noqa: BLE001 - any error of a check means: not ready
        _log.warn("readyz.check.failed", check=name, error=error)
        return "the check failed; the log has the reason"


Probe = Callable[[], Awaitable[Answer]]


class _ProbeEndpoint:
    """A small ASGI application: no parameters, one answer."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send_answer(await self._probe(), scope["extensions"][CORRELATION_ID], send)


def health_routes(
    service: str, health: Health, registry: Registry, versions: Mapping[str, str]
) -> list[BaseRoute]:
    """The routes that every service has; `versions` are those of its protocols."""
    page = _docs_answer()

    async def healthz() -> Answer:
        """Whether the process is alive: 200 with an empty body, to any method."""
        return Answer(200)

    async def readyz() -> Answer:
        """Whether the server can work: 200 with an empty body, or 503 with the reasons."""
        reasons = await health.reasons()
        notes = health.headers()
        return Answer(200, headers=notes) if not reasons else _not_ready(reasons, notes)

    async def describe_health() -> Answer:
        """Whether the server can work, in the words of etcd: `"true"`, or `"false"` with 503; `/readyz` has the reasons."""
        is_ready = not await health.reasons()
        return _bare_json({"health": "true" if is_ready else "false"}, 200 if is_ready else NotReady.status)

    async def describe_version() -> Answer:
        """Which service this is, in which version, and which versions its protocols tell their clients."""
        return json_answer({**_version_members(service), **versions})

    async def metrics() -> Answer:
        """All metrics as Prometheus text."""
        return Answer(200, registry.render(), [(b"content-type", _METRICS_TYPE)])

    async def docs() -> Answer:
        """This page."""
        return page

    return [
        *_any_method("/healthz", healthz),
        *_any_method("/readyz", readyz),
        _get("/health", describe_health),
        _get(VERSION_PATH, describe_version),
        _get("/metrics", metrics),
        _get("/docs", docs),
    ]


def version_route(versions: Mapping[str, str]) -> BaseRoute:
    """`/version` of a listener whose clients want to read nothing but the versions of their protocol."""
    answer = _bare_json(versions)

    async def describe_version() -> Answer:
        return answer

    return _get(VERSION_PATH, describe_version)


def _bare_json(members: Mapping[str, str], status: int = 200) -> Answer:
    """As etcd sends it, to the byte."""
    return Answer(status, to_json(members), JSON_HEADERS)


def _get(path: str, probe: Probe) -> APIRoute:
    route = APIRoute(path, probe, methods=["GET"], response_model=None, tags=["operations"])
    route.app = _ProbeEndpoint(probe)
    return route


def _any_method(path: str, probe: Probe) -> list[BaseRoute]:
    """OpenAPI shows GET; the second route takes every other method, as the probes of some platforms send them."""
    return [_get(path, probe), Route(path, _ProbeEndpoint(probe))]


def _not_ready(reasons: dict[str, str], notes: list[Header]) -> Answer:
    detail = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    body = to_json({"error": NotReady.code, "detail": detail, "reasons": reasons}) + b"\n"
    return Answer(NotReady.status, body, [*JSON_HEADERS, *notes])


def package_version() -> str:
    """The version of the installed distribution."""
    try:
        return version("holdfast-plane")
    except PackageNotFoundError:
        return "unknown"


def _version_members(service: str) -> dict[str, str]:
    return {
        "name": "holdfast",
        "service": service,
        "version": package_version(),
        "python": platform.python_version(),
        "api": API_VERSION,
    }


def _docs_answer() -> Answer:
    """One page without foreign resources; the policy lets only its own script run."""
    page = files("holdfast.common").joinpath("static/docs.html").read_bytes()
    script = page.partition(b"<script>")[2].partition(b"</script>")[0]
    digest = b64encode(sha256(script).digest())
    policy = (
        b"default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'; script-src 'sha256-%b'" % digest
    )
    return Answer(
        200, page, [(b"content-type", b"text/html; charset=utf-8"), (b"content-security-policy", policy)]
    )
