"""Calls of an operation, counted by how they end."""

import pytest

from holdfast.common.errors import InvalidBody
from holdfast.common.telemetry.metrics import OperationMetrics, Registry


def test_a_call_counts_as_ok_as_the_code_of_its_error_or_as_failed() -> None:
    registry = Registry()
    metrics = OperationMetrics(registry, "holdfast.lease.acquire", "Acquires.")

    with metrics.observed("default"):
        pass
    with pytest.raises(InvalidBody), metrics.observed("default"):
        raise InvalidBody("no")
    with pytest.raises(KeyError), metrics.observed("other"):
        raise KeyError

    text = registry.render().decode()
    assert 'holdfast_lease_acquire_total{namespace="default",result="ok"} 1\n' in text
    assert 'holdfast_lease_acquire_total{namespace="default",result="invalid_body"} 1\n' in text
    assert 'holdfast_lease_acquire_total{namespace="other",result="failed"} 1\n' in text
    assert "holdfast_lease_acquire_duration_seconds_count 3\n" in text
