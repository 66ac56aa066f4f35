"""Declarations of hot endpoints: once here, then in the lane's table and in FastAPI's routes and OpenAPI."""

import inspect
from collections.abc import Mapping
from copy import copy
from typing import Any, Final

from fastapi.routing import APIRoute
from pydantic import BaseModel

from holdfast.common.errors import BodyTooLarge, HoldfastError
from holdfast.common.express.asgi import ExpressEndpoint
from holdfast.common.express.hooks import Hooks
from holdfast.common.express.route import BODY_BYTES_DEFAULT, Handler, Route, StreamHandler
from holdfast.common.express.undo import Repeat, Undo
from holdfast.common.wire_errors import ErrorBody

_UNDERSTOOD: Final[dict[tuple[str, str], tuple[tuple[object, ...], APIRoute]]] = {}


class ExpressRouter:
    """The hot endpoints of one service."""

    def __init__(self, *, tags: tuple[str, ...] = ()) -> None:
        self.routes: list[Route] = []
        self._tags = tags

    def add(
        self,
        path: str,
        handler: Handler,
        *,
        stream_handler: StreamHandler | None = None,
        methods: tuple[str, ...] = ("POST",),
        request_model: type[BaseModel] | None = None,
        response_model: type[BaseModel] | None = None,
        errors: tuple[type[HoldfastError], ...] = (),
        tags: tuple[str, ...] = (),
        summary: str = "",
        request_example: Mapping[str, object] | None = None,
        request_content: Mapping[str, object] | None = None,
        response_content: Mapping[str, object] | None = None,
        request_headers: Mapping[str, str] | None = None,
        response_headers: Mapping[str, str] | None = None,
        query_parameters: Mapping[str, str] | None = None,
        body_limit_bytes: int = BODY_BYTES_DEFAULT,
        body_limit_error: type[HoldfastError] = BodyTooLarge,
        is_body_optional: bool = False,
        is_parsed_by_handler: bool = False,
        undo: Undo | None = None,
        repeat: Repeat | None = None,
    ) -> Route:
        """Declare one endpoint; headers and query parameters are named with a sentence each, for the docs.

        `request_content` and `response_content` are JSON schemas by media type, for bodies that are not JSON. `undo` and
        `repeat` are for a gateway in front.
        """
        route = Route(
            path=path,
            methods=methods,
            handler=handler,
            stream_handler=stream_handler,
            request_model=request_model,
            response_model=response_model,
            errors=errors,
            tags=self._tags + tags,
            summary=summary,
            request_example=request_example,
            request_content=request_content or {},
            response_content=response_content or {},
            request_headers=request_headers or {},
            response_headers=response_headers or {},
            query_parameters=query_parameters or {},
            body_limit_bytes=body_limit_bytes,
            body_limit_error=body_limit_error,
            is_body_optional=is_body_optional,
            is_parsed_by_handler=is_parsed_by_handler,
            undo=undo,
            repeat=repeat,
        )
        self.routes.append(route)
        return route

    def fastapi_routes(self, hooks: Hooks) -> list[APIRoute]:
        """The same endpoints for FastAPI: documented there, and served by it when the lane is off.

        One for each method, because each needs an operation id of its own.
        """
        return [_fastapi_route(route, method, hooks) for route in self.routes for method in route.methods]


def _fastapi_route(route: Route, method: str, hooks: Hooks) -> APIRoute:
    """FastAPI takes milliseconds to understand a declaration; the next app of this process has the same ones."""
    said = _said_of(route)
    known = _UNDERSTOOD.get((route.path, method))
    if known is None or known[0] != said:
        known = _UNDERSTOOD[route.path, method] = (said, _understood(route, method))
    fastapi_route = copy(known[1])
    fastapi_route.app = ExpressEndpoint(route, hooks)
    return fastapi_route


def _said_of(route: Route) -> tuple[object, ...]:
    """All that the documentation is made of."""
    return (
        getattr(route.handler, "__name__", ""),
        inspect.getdoc(route.handler),
        route.request_model,
        route.response_model,
        route.errors,
        route.tags,
        route.summary,
        route.request_example,
        route.request_content,
        route.response_content,
        route.request_headers,
        route.response_headers,
        route.query_parameters,
        route.is_body_optional,
    )


def _understood(route: Route, method: str) -> APIRoute:
    return APIRoute(
        route.path,
        _documented_endpoint(route),
        methods=[method],
        response_model=route.response_model,
        tags=list(route.tags),
        summary=route.summary or None,
        description=inspect.getdoc(route.handler) or "",
        responses=_responses(route),
        openapi_extra=_openapi_extra(route),
        name=route.path.strip("/").replace("/", "_"),
    )


def _documented_endpoint(route: Route) -> Any:
    """A function that is never called: FastAPI reads the body's model from its signature."""

    async def endpoint() -> None:
        raise AssertionError("express routes are served by ExpressEndpoint")

    endpoint.__name__ = getattr(route.handler, "__name__", "endpoint")
    if route.request_model is not None:
        default = None if route.is_body_optional else inspect.Parameter.empty
        body = inspect.Parameter(
            "body", inspect.Parameter.KEYWORD_ONLY, annotation=route.request_model, default=default
        )
        endpoint.__signature__ = inspect.Signature([body])  # type: ignore[attr-defined]  # functions take attributes
    return endpoint


def _responses(route: Route) -> dict[int | str, dict[str, Any]]:
    responses: dict[int | str, dict[str, Any]] = {}
    headers = {"X-Correlation-Id": "The caller's id, or a fresh one.", **route.response_headers}
    responses[200] = {
        "headers": {
            name: {"description": text, "schema": {"type": "string"}} for name, text in headers.items()
        }
    }
    if route.response_content:
        responses[200]["content"] = _content(route.response_content)
    for error in route.errors:
        line = f"`{error.code}`: {inspect.getdoc(error) or ''}"
        known = responses.setdefault(error.status, {**_error_content(len(responses)), "description": ""})
        known["description"] = f"{known['description']}\n\n{line}".strip()
    return responses


def _error_content(responses: int) -> dict[str, Any]:
    """FastAPI builds a validator for every model it is given, so only the first error of a route brings the model."""
    if responses == 1:
        return {"model": ErrorBody}
    schema = {"$ref": f"#/components/schemas/{ErrorBody.__name__}"}
    return {"content": {"application/json": {"schema": schema}}}


def _content(schemas: Mapping[str, object]) -> dict[str, Any]:
    return {media_type: {"schema": schema} for media_type, schema in schemas.items()}


def _openapi_extra(route: Route) -> dict[str, Any]:
    extra: dict[str, Any] = {}
    parameters = [("header", name, text) for name, text in route.request_headers.items()]
    parameters += [("query", name, text) for name, text in route.query_parameters.items()]
    if parameters:
        extra["parameters"] = [
            {"in": place, "name": name, "description": text, "schema": {"type": "string"}}
            for place, name, text in parameters
        ]
    if route.request_example is not None:
        extra["requestBody"] = {"content": {"application/json": {"example": dict(route.request_example)}}}
    if route.request_content:
        extra["requestBody"] = {"required": True, "content": _content(route.request_content)}
    return extra
