"""The one shape of all services' apps: `create_app(settings)` of each service calls `build_app`."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.requests import Request as StarletteRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from holdfast.common.dialect import Dialects
from holdfast.common.errors import HoldfastError, InvalidBody, MethodNotAllowed, PathNotFound
from holdfast.common.express.execution import (
    Gate,
    Hooks,
    HttpMetrics,
    Identify,
    identify_by_protocol,
    in_turn,
)
from holdfast.common.express.message import Answer
from holdfast.common.express.route import Route as ExpressRoute
from holdfast.common.express.route import Table, compile_table
from holdfast.common.express.router import ExpressRouter
from holdfast.common.security.principal import Permission
from holdfast.common.serving.drain import Drain
from holdfast.common.serving.edge import EdgeMiddleware
from holdfast.common.serving.health import Health, health_routes, package_version, version_route
from holdfast.common.serving.listener import COMMON_LISTENERS, Listener, ListenerDeclaration
from holdfast.common.telemetry.metrics import Registry
from holdfast.common.wire_errors import ENVELOPE, internal_error

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True)
class AppParts:
    """What the server runner needs to know of an app."""

    service: str
    table: Table
    hooks: Hooks
    drain: Drain
    health: Health
    registry: Registry
    listeners: Sequence[ListenerDeclaration] = COMMON_LISTENERS
    """What the process of this app listens on."""


def build_app(
    service: str,
    *,
    express_routers: Sequence[ExpressRouter] = (),
    lifespan: Lifespan | None = None,
    health: Health | None = None,
    registry: Registry | None = None,
    drain: Drain | None = None,
    identify: Identify | None = None,
    guard: Identify | None = None,
    gates: Mapping[str, Gate] | None = None,
    listeners: Sequence[ListenerDeclaration] = (),
    has_http_ports: bool = True,
) -> FastAPI:
    """An app with health, metrics, docs, error envelopes and these express routes; more routes may be added.

    `identify` finds out whose request it is, where the certificate of its connection and the protocol of its route do not
    say it all; `guard` then refuses those who may not use the route. `listeners` are those beside the common ones; without
    `has_http_ports` those for HTTP are opened by the gateway in front.
    """
    registry = registry or Registry()
    drain = drain or Drain()
    drain.register(registry)
    health = health or Health(drain=drain)
    declared = [route for router in express_routers for route in router.routes]
    table = compile_table(declared)
    if identify is None and any(route.traits.permission is Permission.INTERNAL for route in declared):
        raise ValueError("routes for processes of the plane would be open to every client: pass identify")
    hooks = Hooks(
        identify=_identify(declared, identify, guard),
        gates=gates or {},
        metrics=HttpMetrics(registry),
        dialects=Dialects(ENVELOPE, {route.path: route.traits.dialect for route in declared}),
    )
    app = _bare_app(service, lifespan or _no_lifespan)
    opened = [listener for listener in listeners if has_http_ports or not listener.is_http]
    app.state.parts = AppParts(service, table, hooks, drain, health, registry, (*COMMON_LISTENERS, *opened))
    app.router.routes.extend(route for router in express_routers for route in router.asgi_routes(hooks))
    versions = {name: version for listener in listeners for name, version in listener.version.items()}
    app.router.routes.extend(health_routes(service, health, registry, versions))
    app.add_middleware(EdgeMiddleware, hooks=hooks, dialects=hooks.dialects)
    hints = {"docs": "/docs", "openapi": "/openapi.json", "version": app.version}
    _handle_errors(app, table, hooks.dialects, PathNotFound("nothing is served at this path", hints))
    app.openapi = lambda: _openapi(app, express_routers)  # type: ignore[method-assign]  # FastAPI's documented way to extend it
    _serve_openapi(app)
    return app


def _identify(
    declared: Sequence[ExpressRoute], identify: Identify | None, guard: Identify | None
) -> Identify | None:
    """Nothing is asked of requests for which there is nothing to ask."""
    if identify is None and any(route.traits.identify is not None for route in declared):
        identify = identify_by_protocol
    return identify if guard is None else in_turn(identify, guard)


def app_of(app: FastAPI, listener: Listener) -> FastAPI:
    """The same app with the paths of a listener alone; it is served while the whole one is."""
    parts = parts_of(app)
    small = _bare_app(parts.service, _no_lifespan)
    small.state.parts = parts
    if listener.version:
        small.router.routes.append(version_route(listener.version))  # The first that fits is taken.
    small.router.routes.extend(
        route for route in app.router.routes if listener.has(getattr(route, "path", ""))
    )
    dialects = dialects_of(parts, listener)
    small.add_middleware(EdgeMiddleware, hooks=parts.hooks, dialects=dialects)
    table = table_of(parts, listener)
    only = PathNotFound(f"this listener serves {' and '.join(listener.paths)} alone")
    _handle_errors(small, table, dialects, only)
    return small


def table_of(parts: AppParts, listener: Listener) -> Table:
    """The express routes of its paths."""
    return {path: methods for path, methods in parts.table.items() if listener.has(path.decode())}


def dialects_of(parts: AppParts, listener: Listener) -> Dialects:
    """Where the paths of a listener belong to one protocol, its dialect is spoken everywhere: at unknown paths, at those of
    no protocol such as `/version`, and to those who are refused before they could say what they want."""
    routes = [route for methods in table_of(parts, listener).values() for route in methods.values()]
    found = [parts.hooks.dialects.of(path.rstrip("/")) for path in listener.paths]
    spoken = [dialect for dialect in found if dialect is not ENVELOPE]
    is_one = spoken and all(dialect is spoken[0] for dialect in spoken)
    return Dialects(spoken[0] if is_one else ENVELOPE, {route.path: route.traits.dialect for route in routes})


def _bare_app(service: str, lifespan: Lifespan) -> FastAPI:
    return FastAPI(
        title=f"holdfast {service}",
        version=package_version(),
        lifespan=lifespan,
        openapi_url=None,  # _serve_openapi does it.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )


def parts_of(app: FastAPI) -> AppParts:
    """The parts that `build_app` gave an app."""
    return cast(AppParts, app.state.parts)


@asynccontextmanager
async def _no_lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield


def _handle_errors(app: FastAPI, table: Table, dialects: Dialects, unknown: PathNotFound) -> None:
    async def on_holdfast_error(request: StarletteRequest, error: Exception) -> Response:
        assert isinstance(error, HoldfastError)
        return _response(dialects.of(request.scope["path"]).answer(error))

    async def on_invalid_request(request: StarletteRequest, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return _response(dialects.of(request.scope["path"]).answer(InvalidBody(_validation_text(error))))

    async def on_http_exception(request: StarletteRequest, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _http_exception_response(request, error, table, dialects, unknown)

    app.add_exception_handler(HoldfastError, on_holdfast_error)
    app.add_exception_handler(RequestValidationError, on_invalid_request)
    app.add_exception_handler(HTTPException, on_http_exception)


def _http_exception_response(
    request: StarletteRequest, error: HTTPException, table: Table, dialects: Dialects, unknown: PathNotFound
) -> Response:
    """Routes of ours raise HoldfastErrors; what arrives here comes from the framework itself."""
    path: str = request.scope["path"]
    dialect = dialects.of(path)
    if error.status_code == 404:
        return _response(dialect.answer(unknown))
    if error.status_code == 405:
        methods = table.get(path.encode("utf-8", "surrogateescape"), {})
        allowed = ", ".join(sorted(method.decode() for method in methods))
        response = _response(dialect.answer(MethodNotAllowed("this path does not know this method")))
        response.headers["allow"] = allowed or (error.headers or {}).get("Allow", "")
        return response
    if error.status_code >= 500:
        return _response(dialect.answer(internal_error()))
    return _response(dialect.answer(InvalidBody(str(error.detail))), status=error.status_code)


def _response(answer: Answer, *, status: int | None = None) -> Response:
    response = Response(answer.body, status_code=status or answer.status)
    response.raw_headers = [*answer.headers, (b"content-length", str(len(answer.body)).encode())]
    return response


def _validation_text(error: RequestValidationError) -> str:
    problems = [f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors()[:5]]
    return "; ".join(problems)[:1000]


def _serve_openapi(app: FastAPI) -> None:
    """Making it takes a plane half a second: in a thread, and once, however many ask at first."""
    is_making = asyncio.Lock()

    async def openapi(request: StarletteRequest) -> Response:
        async with is_making:
            schema = (
                await asyncio.to_thread(app.openapi) if app.openapi_schema is None else app.openapi_schema
            )
        return JSONResponse(schema)

    app.router.routes.append(Route("/openapi.json", openapi, include_in_schema=False))


def _openapi(app: FastAPI, express_routers: Sequence[ExpressRouter]) -> dict[str, Any]:
    """Made when it is first asked for. FastAPI documents its own 422 for every body; ours is 400 with the error envelope."""
    if app.openapi_schema is None:
        express = [route for router in express_routers for route in router.documented_routes()]
        schema = get_openapi(title=app.title, version=app.version, routes=[*express, *app.routes])
        for methods in schema["paths"].values():
            for operation in methods.values():
                operation["responses"].pop("422", None)
        for name in ("HTTPValidationError", "ValidationError"):
            schema.get("components", {}).get("schemas", {}).pop(name, None)
        app.openapi_schema = schema
    return app.openapi_schema
