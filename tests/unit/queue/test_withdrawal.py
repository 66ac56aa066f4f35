"""Deliveries found in answers that pass by, wherever the pieces are cut."""

import json
from typing import Any

import pytest

from holdfast.queue.protocol.withdrawal import PassingDeliveries, passing_deliveries

BOUNDARY = b"f" * 60
FIELDS = ("namespace", "queue", "message_id", "lease_id")


def part(number: int, payload: bytes) -> bytes:
    members = {name: f"{name}-{number}" for name in FIELDS}
    meta = json.dumps({"message": {**members, "attempts": 1, "attributes": {"text": '\r\n--"'}}}).encode()
    return b"\r\nContent-Disposition: m\r\n\r\n%b\n\r\n--%b\r\nContent-Type: x\r\n\r\n%b\r\n--%b" % (
        meta,
        BOUNDARY,
        payload,
        BOUNDARY,
    )


OPENING = b"--" + BOUNDARY
FIRST, SECOND = part(1, b"one\r\n--"), part(2, b"two" * 100)
WHOLE = OPENING + FIRST + SECOND + b"--\r\n"


def left(grants: PassingDeliveries) -> list[str]:
    request = grants.request()
    told: list[dict[str, Any]] = [] if request is None else json.loads(request)["deliveries"]
    assert all(set(one) == set(FIELDS) for one in told)
    return [one["lease_id"] for one in told]


@pytest.mark.parametrize("size", [1, 2, 7, 64, 10_000])
def test_all_deliveries_of_an_answer_are_found(size: int) -> None:
    grants = PassingDeliveries(BOUNDARY)

    for start in range(0, len(WHOLE), size):
        grants.feed(WHOLE[start : start + size])

    assert left(grants) == ["lease_id-1", "lease_id-2"]


def test_a_delivery_is_handed_over_with_the_delimiter_behind_it() -> None:
    for end in range(len(OPENING + FIRST)):
        grants = PassingDeliveries(BOUNDARY)
        grants.feed(WHOLE[:end])
        grants.handed_over()
        grants.feed(WHOLE[end:])

        assert left(grants) == ["lease_id-1", "lease_id-2"], end

    grants = PassingDeliveries(BOUNDARY)
    grants.feed(OPENING + FIRST)
    grants.handed_over()
    assert left(grants) == []
    grants.feed(SECOND[:-10])
    assert left(grants) == ["lease_id-2"]


def test_a_delivery_whose_head_was_cut_off_is_its_services_to_give_back() -> None:
    grants = passing_deliveries([(b"content-type", b"multipart/related; boundary=" + BOUNDARY)])

    grants.feed(OPENING + FIRST[:40])

    assert left(grants) == []
