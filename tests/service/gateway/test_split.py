"""The gateway of a split plane as a whole: its docs, its readiness, its back-pressure, its metrics."""

from contextlib import AsyncExitStack
from typing import Any

import httpx

from holdfast.common.role import Role
from holdfast.common.serving.server import ServeOptions, running
from holdfast.gateway.app import create_app
from holdfast.gateway.settings import GatewaySettings
from tests.infra.gateway import LOOPBACK, gateway_before, gateway_settings, url_of, with_identity
from tests.infra.program import free_port
from tests.service.gateway.test_backpressure import ALWAYS_ENGAGED

QUICK = ServeOptions(drain_grace_s=0)
ACQUIRE = {"key": "orders", "owner": "worker-1", "ttl_seconds": 5, "block_seconds": -1}


def _plane_app() -> Any:
    return with_identity(create_app(GatewaySettings.isolated(store="mem://", qrf_disabled=True)))


def test_the_docs_are_those_of_the_plane_in_one_process_and_name_what_the_hop_adds() -> None:
    whole = create_app(GatewaySettings.isolated(store="mem://")).openapi()
    split = create_app(gateway_settings(["http://127.0.0.1:1"]), Role.GATEWAY).openapi()

    assert split["paths"].keys() == whole["paths"].keys()
    for path, methods in whole["paths"].items():
        for method, operation in methods.items():
            found = split["paths"][path][method]
            assert (found["summary"], found.get("description")) == (
                operation["summary"],
                operation.get("description"),
            )
            assert found.get("requestBody") == operation.get("requestBody"), path
    assert "upstream_unavailable" in str(split["paths"]["/v1/acquire"]["post"]["responses"]["503"])


async def test_missing_services_are_told_each_with_its_reason() -> None:
    app = create_app(gateway_settings([f"http://127.0.0.1:{free_port()}"]), Role.GATEWAY)
    async with (
        running(app, LOOPBACK, options=QUICK) as server,
        httpx.AsyncClient(base_url=url_of(server), timeout=30) as client,
    ):
        for upstream in app.state.peers.clients.values():
            await upstream.peers[0].probe("/readyz")
        answer = await client.get("/readyz")
        alive = await client.get("/healthz")

    assert answer.status_code == 503
    assert set(answer.json()["reasons"]) == {"leases", "state", "queue", "txn"}
    assert all("refused" in reason for reason in answer.json()["reasons"].values())
    assert alive.status_code == 200


async def test_back_pressure_stays_at_the_gateway() -> None:
    async with (
        running(_plane_app(), LOOPBACK, options=QUICK) as behind,
        gateway_before(url_of(behind), qrf_wait_s_max=0, **ALWAYS_ENGAGED) as front,
        httpx.AsyncClient(base_url=url_of(front), timeout=30) as client,
    ):
        while "holdfast_qrf_state 2\n" not in (await client.get("/metrics")).text:
            pass
        refused = await client.post("/v1/acquire", json=ACQUIRE)
        direct = await client.post(f"{url_of(behind)}/v1/acquire", json=ACQUIRE)

    assert (refused.status_code, refused.json()["error"]) == (429, "throttled")
    assert direct.status_code == 200


async def test_calls_connections_and_health_of_replicas_show_in_the_metrics() -> None:
    async with (
        running(_plane_app(), LOOPBACK, options=QUICK) as behind,
        gateway_before(url_of(behind)) as front,
        httpx.AsyncClient(base_url=url_of(front), timeout=30) as client,
    ):
        for _ in range(3):
            await client.post("/v1/acquire", json=ACQUIRE)
        shown = (await client.get("/metrics")).text
        labels = f'{{service="leases",peer="{url_of(behind)}"}}'

    assert f"holdfast_upstream_ready{labels} 1\n" in shown
    assert f"holdfast_upstream_failures_total{labels} 0\n" in shown
    assert f"holdfast_upstream_calls_total{labels} " in shown
    assert f"holdfast_upstream_connections{labels} " in shown
    assert 'holdfast_upstream_retries_total{service="leases"} 0\n' in shown


async def test_a_batch_of_keepalives_is_divided_between_the_replicas_of_its_keys() -> None:
    async with (
        running(_plane_app(), LOOPBACK, options=QUICK) as one,
        running(_plane_app(), LOOPBACK, options=QUICK) as two,
        gateway_before(url_of(one), url_of(two)) as front,
        httpx.AsyncClient(base_url=url_of(front), timeout=30) as client,
    ):
        renewals: list[Any] = [{"unknown": 1}]
        for number in range(20):
            told = (await client.post("/v1/acquire", json={**ACQUIRE, "key": f"key-{number}"})).json()
            names = ("namespace", "key", "lease_id", "txn_id", "fencing_token")
            renewals.append({name: told[name] for name in names})
        renewals.insert(10, {**renewals[9], "fencing_token": 9})

        # Each replica has a store of its own here, so a renewal that goes to the other one finds no lease.
        answer = (await client.post("/v1/keepalive/batch", json={"renewals": renewals})).json()
        too_many = await client.post("/v1/keepalive/batch", json={"renewals": renewals[1:2] * 1001})
        none = await client.post("/v1/keepalive/batch", json={"renewals": 7})

    assert answer["renewed"] == 20
    errors = {place: result.get("error") for place, result in enumerate(answer["results"])}
    assert {place for place, error in errors.items() if error} == {0, 10}
    assert (errors[0], errors[10]) == ("invalid_body", "fencing_mismatch")
    assert (too_many.status_code, too_many.json()["error"]) == (400, "too_many_renewals")
    assert (none.status_code, none.json()["error"]) == (400, "invalid_body")


async def test_renewals_whose_replica_is_gone_fail_alone() -> None:
    async with (
        running(_plane_app(), LOOPBACK, options=QUICK) as one,
        AsyncExitStack() as other,
    ):
        two = await other.enter_async_context(running(_plane_app(), LOOPBACK, options=QUICK))
        async with (
            gateway_before(url_of(one), url_of(two)) as front,
            httpx.AsyncClient(base_url=url_of(front), timeout=30) as client,
        ):
            renewals: list[Any] = []
            for number in range(20):
                told = (await client.post("/v1/acquire", json={**ACQUIRE, "key": f"key-{number}"})).json()
                names = ("namespace", "key", "lease_id", "txn_id", "fencing_token")
                renewals.append({name: told[name] for name in names})
            await other.aclose()
            answer = (await client.post("/v1/keepalive/batch", json={"renewals": renewals})).json()

    # What has lost its replica is asked of the other one, whose store knows nothing of it.
    codes = {result.get("error") for result in answer["results"]}
    assert 0 < answer["renewed"] < 20
    assert codes == {None, "lease_required"}


async def test_two_replicas_share_the_keys_and_a_key_stays_with_one() -> None:
    async with (
        running(_plane_app(), LOOPBACK, options=QUICK) as one,
        running(_plane_app(), LOOPBACK, options=QUICK) as two,
        gateway_before(url_of(one), url_of(two)) as front,
        httpx.AsyncClient(base_url=url_of(front), timeout=30) as client,
    ):
        statuses = [
            (await client.post("/v1/acquire", json={**ACQUIRE, "key": f"key-{number % 10}"})).status_code
            for number in range(20)
        ]
        shown = [
            (await client.get(f"{url_of(server)}/metrics")).text.partition("\nholdfast_lease_active ")[2]
            for server in (one, two)
        ]

    # Each replica has a store of its own here, so a key that moved would be granted twice.
    assert statuses == [200] * 10 + [409] * 10
    counts = [int(text.partition("\n")[0]) for text in shown]
    assert sum(counts) == 10
    assert all(counts)
