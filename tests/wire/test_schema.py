"""Requests made from the plane's own OpenAPI, right ones and wrong ones: no answer is a fault of the server."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, settings
from schemathesis import APIOperation, Case, GenerationMode
from schemathesis.core import NotSet
from schemathesis.core.result import Ok

from holdfast.client import Client, Lease
from holdfast.client.testing import TestServer

EXAMPLES: Final = 100
EXAMPLES_BRIEF: Final = 2
Operation = APIOperation[Any, Any, Any, Any]
ANSWER_S: Final = 30.0
KEY: Final = "held"
WAITS: Final = {
    "/v1/acquire": "block_seconds",
    "/v1/queue/dequeue": "wait_seconds",
    "/v1/queue/subscribe": "wait_seconds",
}
"""Beginnings of paths whose requests wait, for ever if nothing is said, and the member that says how long."""

WAIT_FOR_OTHERS: Final = frozenset({"/v3/lock/lock", "/v3/election/campaign", "/v3/election/observe"})
"""Paths whose requests wait for what another client does, and have no way to say how long."""


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    with TestServer("--qrf-disabled") as running:
        yield running


@pytest.fixture(scope="module")
def operations(server: TestServer) -> list[Operation]:
    told = httpx.get(f"{server.url}/openapi.json", trust_env=False, timeout=ANSWER_S).json()
    schema = schemathesis.openapi.from_dict(told)
    found = [each.ok() for each in schema.get_all_operations() if isinstance(each, Ok)]
    return [operation for operation in found if operation.path not in WAIT_FOR_OTHERS]


def send(session: requests.Session, server: TestServer, case: Case[Any]) -> requests.Response:
    """Only the head of the answer: some never end."""
    _wait_for_nothing(case)
    arguments: dict[str, Any] = case.as_transport_kwargs(base_url=server.url)
    try:
        return session.request(**arguments, stream=True, timeout=ANSWER_S, allow_redirects=False)
    except (requests.exceptions.InvalidHeader, requests.exceptions.InvalidURL, UnicodeError):
        assume(False)  # What this client can't even send.
        raise


def _wait_for_nothing(case: Case[Any]) -> None:
    member = next((name for path, name in WAITS.items() if case.path.startswith(path)), None)
    if member is not None and isinstance(case.body, dict | NotSet):
        case.body = {**(case.body if isinstance(case.body, dict) else {}), member: -1}
        case.media_type = case.media_type or "application/json"


def fuzz(
    server: TestServer,
    operation: Operation,
    mode: GenerationMode,
    examples: int,
    lease: Lease | None = None,
) -> None:
    """Send examples of one operation; under a lease all of them prove it.

    What it says it may answer is no fault, such as 503 by a node that is no leader; 500 is one always.
    """
    told = {int(status) for status in operation.definition.raw["responses"] if status != "default"} - {500}
    headers = {} if lease is None else lease.headers()
    query = {} if lease is None else {"key": lease.key, "namespace": lease.namespace}
    strategy = operation.as_strategy(
        generation_mode=mode, headers=_taken(operation, headers), query=_taken(operation, query)
    )

    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )
    @given(case=strategy)
    def check(case: Case[Any]) -> None:
        with send(session, server, case) as answer:
            status = answer.status_code
            is_told = status in told or (status == 500 and _is_etcds(answer))
            assert status < 500 or is_told, f"{status} to {case.as_curl_command()}"
            if "Content-Length" in answer.headers:
                assert answer.content is not None  # Read to its end, so that the connection is used again.

    with requests.Session() as session:
        session.trust_env = False
        check()


def _is_etcds(answer: requests.Response) -> bool:
    """etcd answers 500 to errors that it has no number of their own for, as its clients expect; a defect has another one."""
    return answer.headers["content-type"] == "application/json" and answer.json().get("code") == 2


def _taken(operation: Operation, fields: Mapping[str, str]) -> dict[str, str] | None:
    names = {parameter.name for parameter in operation.iter_parameters()}
    return {name: value for name, value in fields.items() if name in names} or None


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("examples", [EXAMPLES_BRIEF, pytest.param(EXAMPLES, marks=pytest.mark.long)])
@pytest.mark.parametrize("mode", list(GenerationMode))
def test_no_request_of_the_schema_is_a_fault_of_the_server(
    server: TestServer, operations: list[Operation], mode: GenerationMode, examples: int
) -> None:
    assert len(operations) > 20

    for operation in operations:
        if mode is GenerationMode.NEGATIVE and not any(operation.iter_parameters()) and not operation.body:
            continue  # Nothing in it could be wrong.
        fuzz(server, operation, mode, examples)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("examples", [EXAMPLES_BRIEF, pytest.param(EXAMPLES, marks=pytest.mark.long)])
def test_no_request_of_a_holder_is_a_fault_of_the_server(
    server: TestServer, operations: list[Operation], examples: int
) -> None:
    with Client(server.url) as client:
        for operation in operations:
            session = client.acquire(KEY, ttl_s=600)
            session.save({"n": 1})
            fuzz(server, operation, GenerationMode.POSITIVE, examples, session.lease)
            session.release(rollback=True)
