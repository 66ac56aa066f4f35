"""What the containers of a plane are given: each no more than its role needs."""

from pathlib import Path
from typing import Any

import yaml

from holdfast.common.role import SERVICES

COMPOSE: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parents[2] / "deploy" / "compose.yaml").read_text("utf-8")
)


def test_a_gateway_is_given_no_store_and_waits_for_none() -> None:
    gateway = COMPOSE["services"]["gateway"]

    assert "POSTGRES" not in str(gateway)
    assert not {"HOLDFAST_STORE", "depends_on"} & {*gateway, *gateway["environment"]}


def test_every_service_has_the_same_store_and_what_the_gateway_has() -> None:
    shared = COMPOSE["services"]["gateway"]["environment"]

    for role in SERVICES:
        service = COMPOSE["services"][role]
        store = service["environment"]["HOLDFAST_STORE"]
        assert store.startswith("postgres://"), role
        assert service["environment"] == {**shared, "HOLDFAST_STORE": store}, role
        assert service["depends_on"] == {"postgres": {"condition": "service_healthy"}}, role
