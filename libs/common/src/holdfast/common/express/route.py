"""One hot endpoint as it was declared, and the table the lane finds it in."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import BaseModel

from holdfast.common.errors import BodyTooLarge, HoldfastError
from holdfast.common.express.message import AnyAnswer, Request
from holdfast.common.express.traits import DEFAULT_TRAITS, Traits
from holdfast.common.express.undo import Repeat, Undo
from holdfast.common.security.principal import Permission

# The body of a handler is an instance of the route's own model; Any lets each handler name that model.
Handler = Callable[[Request, Any], Awaitable[AnyAnswer]]
StreamHandler = Callable[[Request, AsyncIterator[bytes]], Awaitable[AnyAnswer]]
"""Takes a body that is too large to be collected; the request's own `body` is empty then."""

BODY_BYTES_DEFAULT: Final = 1024 * 1024
INTERNAL_PREFIX: Final = "/internal/"
"""Where the routes for processes of the plane are, and no others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """An exact path, its methods, its handler, and what the documentation says about it."""

    path: str
    methods: tuple[str, ...]
    handler: Handler
    stream_handler: StreamHandler | None = None
    request_model: type[BaseModel] | None = None
    response_model: type[BaseModel] | None = None
    errors: tuple[type[HoldfastError], ...] = ()
    tags: tuple[str, ...] = ()
    summary: str = ""
    request_example: Mapping[str, object] | None = None
    request_content: Mapping[str, object] = field(default_factory=dict[str, object])
    response_content: Mapping[str, object] = field(default_factory=dict[str, object])
    response_headers: Mapping[str, str] = field(default_factory=dict[str, str])
    bodiless_responses: Mapping[int, str] = field(default_factory=dict[int, str])
    request_headers: Mapping[str, str] = field(default_factory=dict[str, str])
    query_parameters: Mapping[str, str] = field(default_factory=dict[str, str])
    body_limit_bytes: int = BODY_BYTES_DEFAULT
    body_limit_error: type[HoldfastError] = BodyTooLarge
    is_body_optional: bool = False
    is_parsed_by_handler: bool = False
    is_documented: bool = True
    undo: Undo | None = None
    repeat: Repeat | None = None
    traits: Traits = DEFAULT_TRAITS
    validate_json: Callable[[bytes], BaseModel] | None = field(init=False)

    def __post_init__(self) -> None:
        if not self.path.startswith("/") or set(self.path) & set("{}?#%"):
            raise ValueError(f"an express route has an exact, plain path, not {self.path!r}")
        if not self.methods or any(method != method.upper() for method in self.methods):
            raise ValueError(f"{self.path}: methods are given in capitals, not {self.methods!r}")
        is_internal = self.traits.permission is Permission.INTERNAL
        if is_internal is not self.path.startswith(INTERNAL_PREFIX):
            raise ValueError(
                f"{self.path}: routes below {INTERNAL_PREFIX}, and no others, need {Permission.INTERNAL!r}"
            )
        model = self.request_model
        validate = None if model is None else model.__pydantic_validator__.validate_json
        object.__setattr__(self, "validate_json", validate)

    def above_limit(self) -> HoldfastError:
        """What the sender of a larger body is told."""
        return self.body_limit_error(
            f"the body is larger than {self.body_limit_bytes} bytes, the limit of this endpoint"
        )


Table = Mapping[bytes, Mapping[bytes, Route]]


def compile_table(routes: list[Route]) -> dict[bytes, dict[bytes, Route]]:
    """Path to method to route, in the bytes of the wire; two routes for one method and path are a mistake."""
    table: dict[bytes, dict[bytes, Route]] = {}
    for route in routes:
        methods = table.setdefault(route.path.encode("ascii"), {})
        for method in route.methods:
            if method.encode("ascii") in methods:
                raise ValueError(f"{method} {route.path} is declared twice")
            methods[method.encode("ascii")] = route
    return table
