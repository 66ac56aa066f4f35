"""Which error dialect speaks at which path."""

import pytest
from pydantic import BaseModel

from holdfast.common.dialect import Dialects
from holdfast.common.errors import HoldfastError
from holdfast.common.express.message import Answer


class Body(BaseModel):
    message: str


class Named:
    """Says its name for every error."""

    error_model: type[BaseModel] = Body

    def __init__(self, name: str, *prefixes: str) -> None:
        self.name = name
        self.prefixes = prefixes

    def answer(self, error: HoldfastError) -> Answer:
        return Answer(error.status, self.name.encode())


DEFAULT = Named("default")
V1 = Named("v1", "/v1")
V3 = Named("v3", "/v3", "/v3beta")
ADMIN = Named("admin", "/v1/admin")
ROUTES = {"/v1/get": V1, "/v3/kv/range": V3, "/v1/admin/keys": ADMIN, "/odd": ADMIN}


@pytest.mark.parametrize(
    ("path", "dialect"),
    [
        ("/v1/get", V1),
        ("/v1/nothing", V1),
        ("/v1", V1),
        ("/v1/", V1),
        ("/v1/get/more", V1),
        ("/v1/admin", ADMIN),
        ("/v1/admin/x/y", ADMIN),
        ("/v1/administer", V1),
        ("/v3beta/kv", V3),
        ("/v3gamma/kv", DEFAULT),
        ("/odd", ADMIN),
        ("/odd/more", DEFAULT),
        ("/v10/get", DEFAULT),
        ("/", DEFAULT),
        ("", DEFAULT),
        ("*", DEFAULT),
    ],
)
def test_the_route_or_else_the_longest_prefix_says_which_dialect_it_is(path: str, dialect: Named) -> None:
    assert Dialects(DEFAULT, ROUTES).of(path) is dialect


@pytest.mark.parametrize("target", [b"/v3/kv?x=/v1/get", b"/v3/\xff", b"/v3"])
def test_a_request_target_is_enough(target: bytes) -> None:
    assert Dialects(DEFAULT, ROUTES).of_target(target) is V3


def test_a_prefix_belongs_to_one_dialect() -> None:
    with pytest.raises(ValueError, match="claim /v1"):
        Dialects(DEFAULT, {"/v1/a": V1, "/v1/b": Named("other", "/v1")})


def test_a_prefix_is_a_path() -> None:
    with pytest.raises(ValueError, match="no prefix"):
        Dialects(DEFAULT, {"/v1/a": Named("slash", "/v1/")})
