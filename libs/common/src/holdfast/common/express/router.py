"""Declarations of hot endpoints: once here, then in the lane's table, in plain ASGI's routes and in OpenAPI."""

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Unpack

from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.routing import BaseRoute, Match
from starlette.routing import Route as StarletteRoute
from starlette.types import Scope

from holdfast.common.errors import BodyTooLarge, HoldfastError
from holdfast.common.express.asgi import ExpressEndpoint
from holdfast.common.express.execution import Hooks
from holdfast.common.express.route import BODY_BYTES_DEFAULT, Handler, Route, StreamHandler
from holdfast.common.express.traits import DEFAULT_TRAITS, TraitChanges
from holdfast.common.express.undo import Repeat, Undo


class ExpressRouter:
    """The hot endpoints of one service, and the traits that they share unless one says otherwise."""

    def __init__(self, *, tags: tuple[str, ...] = (), **traits: Unpack[TraitChanges]) -> None:
        self.routes: list[Route] = []
        self._tags = tags
        self._traits = replace(DEFAULT_TRAITS, **traits)

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
        bodiless_responses: Mapping[int, str] | None = None,
        query_parameters: Mapping[str, str] | None = None,
        body_limit_bytes: int = BODY_BYTES_DEFAULT,
        body_limit_error: type[HoldfastError] = BodyTooLarge,
        is_body_optional: bool = False,
        is_parsed_by_handler: bool = False,
        is_documented: bool = True,
        undo: Undo | None = None,
        repeat: Repeat | None = None,
        **traits: Unpack[TraitChanges],
    ) -> Route:
        """Declare one endpoint; headers and query parameters are named with a sentence each, for the docs.

        `request_content` and `response_content` are JSON schemas by media type, for bodies that are not JSON;
        `bodiless_responses` say by status when an answer is none of errors and has no body. `undo` and `repeat` are for a
        gateway in front. What is documented at one path need not be at another. The rest are traits that differ from those
        of the router.
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
            bodiless_responses=bodiless_responses or {},
            query_parameters=query_parameters or {},
            body_limit_bytes=body_limit_bytes,
            body_limit_error=body_limit_error,
            is_body_optional=is_body_optional,
            is_parsed_by_handler=is_parsed_by_handler,
            is_documented=is_documented,
            undo=undo,
            repeat=repeat,
            traits=replace(self._traits, **traits) if traits else self._traits,
        )
        self.routes.append(route)
        return route

    def asgi_routes(self, hooks: Hooks) -> list[BaseRoute]:
        """The same endpoints for plain ASGI, which serves them when the lane does not."""
        return [_AsgiRoute(route, hooks) for route in self.routes]

    def documented_routes(self) -> list[APIRoute]:
        """The same endpoints as FastAPI documents them; one for each method, because each needs an operation id of its own."""
        documented = [route for route in self.routes if route.is_documented]
        return [_documented_route(route, method) for route in documented for method in route.methods]


class _AsgiRoute(StarletteRoute):
    """Serves, and is not documented: FastAPI takes milliseconds to understand a declaration."""

    def __init__(self, route: Route, hooks: Hooks) -> None:
        super().__init__(route.path, ExpressEndpoint(route, hooks), include_in_schema=False)
        self.methods = set(route.methods)  # Given to the constructor, GET would bring HEAD along.

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child_scope = super().matches(scope)
        if match is not Match.NONE:
            child_scope["route"] = self  # As FastAPI has it; what was refused here is counted by its path.
        return match, child_scope


def _documented_route(route: Route, method: str) -> APIRoute:
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
    named = {"X-Correlation-Id": "The caller's id, or a fresh one.", **route.response_headers}
    headers = {name: {"description": text, "schema": {"type": "string"}} for name, text in named.items()}
    responses[200] = {"headers": headers}
    if route.response_content:
        responses[200]["content"] = _content(route.response_content)
    for error in route.errors:
        line = f"`{error.code}`: {inspect.getdoc(error) or ''}"
        known = responses.setdefault(
            error.status, {**_error_content(route, len(responses)), "description": ""}
        )
        known["description"] = f"{known['description']}\n\n{line}".strip()
    for status, text in route.bodiless_responses.items():
        responses[status] = {"description": text, "headers": headers}
    return responses


def _error_content(route: Route, responses: int) -> dict[str, Any]:
    """FastAPI builds a validator for every model it is given, so only the first error of a route brings the model."""
    model = route.traits.dialect.error_model
    if responses == 1:
        return {"model": model}
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
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
