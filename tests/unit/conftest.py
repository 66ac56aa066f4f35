"""Tests that run outside of any task share one context: what they leave in it must not reach the next."""

from collections.abc import Iterator

import pytest

from holdfast.common.tracing import current_span


@pytest.fixture(autouse=True)
def no_span_is_left() -> Iterator[None]:
    yield
    current_span.set(None)
