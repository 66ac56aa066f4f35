"""The time that a queue gives a consumer for a delivery."""

from tests.unit.queue.keys.plane import Node, message


def deliveries(node: Node, client: bytes) -> list[int]:
    return sorted(idx for idx, one in node.check(b"q").deliveries.items() if one.client == client)


def test_a_delivery_that_is_too_old_goes_to_the_next_consumer_and_back() -> None:
    node = Node().come()
    node.put(b"/queue/q", b'{"ack_timeout_s":5}')
    node.put(b"/queue/q/consumer/A/")
    node.put(b"/queue/q/consumer/B/")
    node.put(message(b"q", b"m"))

    found: list[list[list[int]]] = []
    for ms in (4999, 1, 4999, 1):
        node.store.now_ms += ms
        node.see_to_due()
        found.append([deliveries(node, client) for client in (b"A", b"B")])

    assert found == [[[1], []], [[], [1]], [[], [1]], [[1], []]]


def test_a_time_holds_for_deliveries_from_then_on_and_none_for_all() -> None:
    node = Node().come()
    node.put(b"/queue/q/consumer/A/")
    node.put(message(b"q", b"before"))
    node.put(b"/queue/q", b'{"ack_timeout_s":5}')
    node.put(message(b"q", b"after"))
    node.put(b"/queue/q/consumer/B/")

    node.store.now_ms += 5000
    node.see_to_due()
    assert (deliveries(node, b"A"), deliveries(node, b"B")) == ([1], [2])

    node.put(b"/queue/q", b'{"ack_timeout_s":0}')
    node.store.now_ms += 600_000
    node.see_to_due()
    assert (deliveries(node, b"A"), deliveries(node, b"B")) == ([1], [2])
    assert node.due == {}


def test_what_was_acknowledged_in_time_is_not_taken_back() -> None:
    node = Node().come()
    node.put(b"/queue/q", b'{"ack_timeout_s":5}')
    node.put(b"/queue/q/consumer/A/")
    node.put(message(b"q", b"m"))
    assert node.delete_below(b"/queue/q/consumer/A/0").deleted == 1

    node.store.now_ms += 5000
    revision = node.revision
    node.see_to_due()

    assert node.revision == revision
    assert node.check(b"q").messages == {}


def test_one_that_stays_under_its_room_when_that_is_made_less_gets_no_more() -> None:
    node = Node().come()
    node.put(b"/queue/q", b'{"ack_timeout_s":5,"max_in_flight":3}')
    node.put(b"/queue/q/consumer/A/")
    for name in (b"1", b"2", b"3", b"4"):
        node.put(message(b"q", name))
    node.put(b"/queue/q", b'{"max_in_flight":1}')

    node.store.now_ms += 5000
    node.see_to_due()

    assert deliveries(node, b"A") == [1]
