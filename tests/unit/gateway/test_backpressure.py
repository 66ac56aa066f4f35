"""Samples step the throttle, and logs and metrics tell."""

import io
import json
from collections.abc import Iterator

import pytest

from holdfast.common.express.message import Answer, Request
from holdfast.common.express.router import ExpressRouter
from holdfast.common.express.traits import Admission, Begins, Group
from holdfast.common.logging import configure_logging
from holdfast.common.telemetry.metrics import Registry
from holdfast.gateway.admission.backpressure import Backpressure
from holdfast.gateway.admission.gates import Throttled
from holdfast.gateway.admission.load_sample import HostFigures
from holdfast.gateway.settings import GatewaySettings


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    configure_logging("debug", stream=stream)
    yield stream
    configure_logging()


async def _handle(request: Request, body: None) -> Answer:
    return Answer(200)


ROUTER = ExpressRouter(admission=Admission(Group.LOCK, Begins.ALWAYS))
ACQUIRE = ROUTER.add("/v1/acquire", _handle)


def _backpressure(settings: GatewaySettings, registry: Registry) -> Backpressure:
    backpressure = Backpressure(settings, registry)
    backpressure.admission.guard([ROUTER])
    return backpressure


def _request() -> Request:
    return Request("POST", "/v1/acquire", b"", [], b"", None, None, "id-1")


async def test_a_late_loop_is_told_in_logs_and_metrics(log: io.StringIO) -> None:
    registry = Registry()
    backpressure = _backpressure(GatewaySettings.isolated(), registry)
    backpressure.admission.gates[ACQUIRE.path].enter(_request())

    backpressure.observe(0.5, HostFigures(rss_bytes=4096, load_1=3.0))

    line = json.loads(log.getvalue())
    text = registry.render().decode()
    assert line["msg"] == "holdfast.qrf.engaged"
    assert line["sys"] == "control.qrf.controller"
    assert (line["previous_state"], line["reason"]) == ("disengaged", "lag_hard")
    assert (line["lag_ms"], line["locks"]) == (500.0, 1)
    assert "holdfast_qrf_state 2\n" in text
    assert 'holdfast_qrf_transition_total{previous="disengaged",state="engaged"} 1\n' in text
    assert 'holdfast_qrf_decision_total{group="lock",decision="allow"} 1\n' in text
    assert "holdfast_lsf_lag_seconds 0.5\n" in text
    assert "holdfast_lsf_lock_inflight 1\n" in text
    assert "holdfast_lsf_rss_bytes 4096\n" in text
    assert 'holdfast_lsf_load{minutes="1"} 3\n' in text


async def test_a_turn_that_refused_work_keeps_the_throttle_engaged(log: io.StringIO) -> None:
    registry = Registry()
    # With such a budget a turn is over as soon as it has taken its first piece of work.
    settings = GatewaySettings.isolated(qrf_lag_soft_limit_s=1e-9, qrf_lag_hard_limit_s=0.1)
    backpressure = _backpressure(settings, registry)
    backpressure.observe(0.5, HostFigures())

    for _ in range(20):
        backpressure.admission.gates[ACQUIRE.path].enter(_request())
        pause = backpressure.admission.gates[ACQUIRE.path].enter(_request())
        assert pause is not None
        with pytest.raises(Throttled):
            await pause
        backpressure.observe(0.0, HostFigures())

    assert backpressure.admission.controller.state == "engaged"
    assert 'holdfast_qrf_throttle_total{group="lock",action="refuse"} 20\n' in registry.render().decode()


async def test_requests_take_the_sample_that_is_overdue(log: io.StringIO) -> None:
    backpressure = _backpressure(GatewaySettings.isolated(), Registry())
    backpressure.admission.overdue_s = 0.0

    for _ in range(64):
        backpressure.admission.gates[ACQUIRE.path].enter(_request())

    assert backpressure.admission.controller.state == "engaged"
    assert backpressure.admission.overdue_s > 0.0
