"""The commands of dflockd's protocol. Each is a function of the connection, the key and the argument, and returns the answer,
without its end of line; None when that comes later."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from pydantic_core import to_json

from holdfast.leases.layer.locks.records import Grant, Outcome, Pending, Refused
from holdfast.leases.layer.locks.signals import InvalidPattern
from holdfast.leases.layer.locks.values import ValueRefused
from holdfast.leases.protocol.dflockd import arguments
from holdfast.leases.protocol.dflockd.arguments import Malformed
from holdfast.leases.protocol.dflockd.stats import merged

if TYPE_CHECKING:
    from holdfast.leases.protocol.dflockd.connection import LockConnection

Command = Callable[["LockConnection", bytes, bytes], bytes | None]

OK: Final = b"ok"
ERROR: Final = b"error"
NIL: Final = b"nil"
_REFUSED: Final[Mapping[Refused, bytes]] = {
    Refused.TIMEOUT: b"timeout",
    Refused.MAX_LOCKS: b"error_max_locks",
    Refused.MAX_WAITERS: b"error_max_waiters",
    Refused.LIMIT_MISMATCH: b"error_limit_mismatch",
    Refused.ALREADY_ENQUEUED: b"error_already_enqueued",
    Refused.NOT_ENQUEUED: b"error_not_enqueued",
    Refused.LEASE_EXPIRED: b"error_lease_expired",
    Refused.UNAVAILABLE: ERROR,
}
_VALUE_REFUSED: Final[Mapping[ValueRefused, bytes]] = {
    ValueRefused.MAX_KEYS: b"error_max_keys",
    ValueRefused.LIST_FULL: b"error_list_full",
    ValueRefused.OVERFLOW: ERROR,
}


Answer = Callable[[Outcome], bytes]
"""Says what a request came to, also one that was pending."""


def granted(outcome: Outcome) -> bytes:
    if isinstance(outcome, Grant):
        return b"ok %b %d" % (outcome.token, outcome.ttl_s)
    return _REFUSED[outcome] if isinstance(outcome, Refused) else ERROR


def enqueued(outcome: Outcome) -> bytes:
    if outcome is None:
        return b"queued"
    if isinstance(outcome, Grant):
        return b"acquired %b %d" % (outcome.token, outcome.ttl_s)
    return _REFUSED[outcome] if isinstance(outcome, Refused) else ERROR


def done(outcome: Outcome) -> bytes:
    return OK if outcome is True else ERROR


def counted(outcome: Outcome) -> bytes:
    return b"ok %d" % outcome if isinstance(outcome, int) else ERROR


# -- locks and semaphores


def lock(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    timeout, *ttl = arguments.fields(argument, 1, 2)
    return _acquire(connection, key, arguments.seconds(timeout), 1, ttl)


def semaphore_lock(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    timeout, limit, *ttl = arguments.fields(argument, 2, 3)
    return _acquire(connection, key, arguments.seconds(timeout), arguments.positive(limit), ttl)


def _acquire(
    connection: "LockConnection", key: bytes, timeout_s: int, limit: int, ttl: list[bytes]
) -> bytes | None:
    ttl_s = _ttl_s(connection, ttl)
    found = connection.service.acquire(connection.session, key, limit, ttl_s, timeout_s, connection.tell)
    if isinstance(found, Grant):  # At once: the hot path.
        return b"ok %b %d" % (found.token, found.ttl_s)
    return connection.block(found, granted) if isinstance(found, Pending) else granted(found)


def release(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    token = argument.strip()
    if not token:
        raise Malformed
    found = connection.service.release(connection.session, key, token, connection.tell)
    if found is True:
        return OK
    return connection.block(found, done) if isinstance(found, Pending) else done(found)


def renew(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    token, *ttl = arguments.fields(argument, 1, 2)
    ttl_s = _ttl_s(connection, ttl)

    def renewed(outcome: Outcome) -> bytes:
        return b"ok %d" % ttl_s if outcome is True else ERROR

    found = connection.service.renew(connection.session, key, token, ttl_s, connection.tell)
    return connection.block(found, renewed) if isinstance(found, Pending) else renewed(found)


def enqueue(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    return _enqueue(connection, key, 1, arguments.fields(argument, 0, 1))


def semaphore_enqueue(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    limit, *ttl = arguments.fields(argument, 1, 2)
    return _enqueue(connection, key, arguments.positive(limit), ttl)


def _enqueue(connection: "LockConnection", key: bytes, limit: int, ttl: list[bytes]) -> bytes | None:
    ttl_s = _ttl_s(connection, ttl)
    found = connection.service.enqueue(connection.session, key, limit, ttl_s, connection.tell)
    return connection.block(found, enqueued) if isinstance(found, Pending) else enqueued(found)


def wait(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    (timeout,) = arguments.fields(argument, 1, 1)
    timeout_s = arguments.seconds(timeout)
    found = connection.service.wait(connection.session, key, timeout_s, connection.tell)
    return connection.block(found, granted) if isinstance(found, Pending) else granted(found)


def _ttl_s(connection: "LockConnection", given: list[bytes]) -> int:
    return arguments.positive(given[0]) if given else connection.service.options.default_ttl_s


# -- signals


def listen(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    try:
        found = connection.service.listen(connection, key, _group(argument), connection.tell)
    except InvalidPattern:
        return ERROR
    return connection.block(found, done) if isinstance(found, Pending) else done(found)


def unlisten(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    found = connection.service.unlisten(connection, key, _group(argument), connection.tell)
    return connection.block(found, done) if isinstance(found, Pending) else done(found)


def _group(argument: bytes) -> bytes:
    group = argument.strip()
    if b" " in group or b"\t" in group:
        raise Malformed
    return group


def signal(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    if b"*" in key or b">" in key or not argument:
        raise Malformed
    found = connection.service.signal(key, argument, connection.tell)
    return connection.block(found, counted) if isinstance(found, Pending) else counted(found)


# -- values


def _of_value(
    connection: "LockConnection", step: str, key: bytes, answer_of: Answer, *arguments: int | bytes
) -> bytes | None:
    found = connection.service.value(step, key, arguments, connection.tell)
    return connection.block(found, answer_of) if isinstance(found, Pending) else answer_of(found)


def number(outcome: Outcome) -> bytes:
    return b"ok %d" % outcome if isinstance(outcome, int) else refused(outcome)


def text(outcome: Outcome) -> bytes:
    if outcome is None:
        return NIL
    return b"ok " + outcome if isinstance(outcome, bytes) else refused(outcome)


def stored(outcome: Outcome) -> bytes:
    return OK if outcome is None else refused(outcome)


def listed(outcome: Outcome) -> bytes:
    if not isinstance(outcome, list):
        return refused(outcome)
    return b"ok " + to_json([item.decode("utf-8", "replace") for item in outcome])


def refused(outcome: Outcome) -> bytes:
    return _VALUE_REFUSED[outcome] if isinstance(outcome, ValueRefused) else ERROR


def increase(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    return _of_value(connection, "add", key, number, arguments.integer(argument.strip()))


def decrease(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    return _of_value(connection, "add", key, number, -arguments.integer(argument.strip()))


def counter(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    return _of_value(connection, "counter", key, number)


def set_counter(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    return _of_value(connection, "set_counter", key, stored, arguments.integer(argument.strip()))


def put(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    before, blank, last = argument.rpartition(b" ")
    ttl_s = arguments.ttl(last) if blank else None
    value = argument if ttl_s is None else before
    if not value:
        raise Malformed
    return _of_value(connection, "put", key, stored, value, ttl_s or 0)


def get(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    return _of_value(connection, "get", key, text)


def delete(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    return _of_value(connection, "delete", key, stored)


def push_left(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    return _push(connection, key, argument, is_left=True)


def push_right(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    return _push(connection, key, argument, is_left=False)


def _push(connection: "LockConnection", key: bytes, item: bytes, *, is_left: bool) -> bytes | None:
    if not item:
        raise Malformed
    return _of_value(connection, "push", key, number, item, is_left)


def pop_left(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    return _of_value(connection, "pop", key, text, True)


def pop_right(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    return _of_value(connection, "pop", key, text, False)


def length(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    return _of_value(connection, "length", key, number)


def items(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    start, stop = (arguments.integer(field) for field in arguments.fields(argument, 2, 2))
    return _of_value(connection, "items", key, listed, start, stop)


# -- the server


def authenticate(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    """It was the first request if it was one at all."""
    return ERROR


def show_stats(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    found = connection.service.overview(connection.tell)
    return connection.block(found, shown) if isinstance(found, Pending) else shown(found)


def shown(outcome: Outcome) -> bytes:
    return b"ok " + merged(outcome) if isinstance(outcome, list) else ERROR


def ping(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    return OK


KEYLESS: Final[Mapping[bytes, Command]] = {b"auth": authenticate, b"stats": show_stats}
"""Their key is not looked at."""
KEYED: Final[Mapping[bytes, Command]] = {
    b"l": lock,
    b"r": release,
    b"n": renew,
    b"e": enqueue,
    b"w": wait,
    b"sl": semaphore_lock,
    b"sr": release,
    b"sn": renew,
    b"se": semaphore_enqueue,
    b"sw": wait,
    b"listen": listen,
    b"unlisten": unlisten,
    b"signal": signal,
    b"incr": increase,
    b"decr": decrease,
    b"get": counter,
    b"cset": set_counter,
    b"kset": put,
    b"kget": get,
    b"kdel": delete,
    b"lpush": push_left,
    b"rpush": push_right,
    b"lpop": pop_left,
    b"rpop": pop_right,
    b"llen": length,
    b"lrange": items,
    b"ping": ping,
}
