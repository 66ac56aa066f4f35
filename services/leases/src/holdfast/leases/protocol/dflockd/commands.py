"""The commands of dflockd's protocol. Each is a function of the connection, the key and the argument, and returns the answer,
without its end of line; None when that comes later."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from pydantic_core import to_json

from holdfast.leases.layer.locks.records import Holder, Refused
from holdfast.leases.layer.locks.signals import InvalidPattern
from holdfast.leases.layer.locks.values import ValueRefused
from holdfast.leases.protocol.dflockd import arguments
from holdfast.leases.protocol.dflockd.arguments import Malformed
from holdfast.leases.protocol.dflockd.stats import stats

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
}
_VALUE_REFUSED: Final[Mapping[ValueRefused, bytes]] = {
    ValueRefused.MAX_KEYS: b"error_max_keys",
    ValueRefused.LIST_FULL: b"error_list_full",
    ValueRefused.OVERFLOW: ERROR,
}


def granted(holder: Holder) -> bytes:
    return b"ok %b %d" % (holder.token, holder.ttl_s)


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
    service = connection.service
    ttl_s = _ttl_s(connection, ttl)
    told = connection.granted if timeout_s else None
    found = service.table.acquire(connection.session, key, limit, ttl_s, service.now_s(), told)
    if isinstance(found, Holder):
        return granted(found)
    if isinstance(found, Refused):
        return _REFUSED[found]
    connection.block(found, timeout_s)
    return None


def release(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    token = argument.strip()
    if not token:
        raise Malformed
    return OK if connection.service.table.release(key, token, connection.service.now_s()) else ERROR


def renew(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    token, *ttl = arguments.fields(argument, 1, 2)
    ttl_s = _ttl_s(connection, ttl)
    is_renewed = connection.service.table.renew(key, token, ttl_s, connection.service.now_s())
    return b"ok %d" % ttl_s if is_renewed else ERROR


def enqueue(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    return _enqueue(connection, key, 1, arguments.fields(argument, 0, 1))


def semaphore_enqueue(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    limit, *ttl = arguments.fields(argument, 1, 2)
    return _enqueue(connection, key, arguments.positive(limit), ttl)


def _enqueue(connection: "LockConnection", key: bytes, limit: int, ttl: list[bytes]) -> bytes:
    service = connection.service
    ttl_s = _ttl_s(connection, ttl)
    found = service.table.enqueue(connection.session, key, limit, ttl_s, service.now_s())
    if found is None:
        return b"queued"
    return _REFUSED[found] if isinstance(found, Refused) else b"acquired %b %d" % (found.token, found.ttl_s)


def wait(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    (timeout,) = arguments.fields(argument, 1, 1)
    timeout_s = arguments.seconds(timeout)
    service = connection.service
    told = connection.granted if timeout_s else None
    found = service.table.wait(connection.session, key, service.now_s(), told)
    if isinstance(found, Holder):
        return granted(found)
    if isinstance(found, Refused):
        return _REFUSED[found]
    connection.block(found, timeout_s)
    return None


def _ttl_s(connection: "LockConnection", given: list[bytes]) -> int:
    return arguments.positive(given[0]) if given else connection.service.options.default_ttl_s


# -- signals


def listen(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    try:
        connection.service.signals.listen(connection, key, _group(argument))
    except InvalidPattern:
        return ERROR
    return OK


def unlisten(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    connection.service.signals.unlisten(connection, key, _group(argument))
    return OK


def _group(argument: bytes) -> bytes:
    group = argument.strip()
    if b" " in group or b"\t" in group:
        raise Malformed
    return group


def signal(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    if b"*" in key or b">" in key or not argument:
        raise Malformed
    return b"ok %d" % connection.service.signals.send(key, argument)


# -- values


def increase(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    return _add(connection, key, arguments.integer(argument.strip()))


def decrease(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    return _add(connection, key, -arguments.integer(argument.strip()))


def _add(connection: "LockConnection", key: bytes, delta: int) -> bytes:
    found = connection.service.values.add(key, delta, connection.service.now_s())
    return _VALUE_REFUSED[found] if isinstance(found, ValueRefused) else b"ok %d" % found


def counter(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    return b"ok %d" % connection.service.values.counter(key, connection.service.now_s())


def set_counter(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    value = arguments.integer(argument.strip())
    refused = connection.service.values.set_counter(key, value, connection.service.now_s())
    return OK if refused is None else _VALUE_REFUSED[refused]


def put(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    before, blank, last = argument.rpartition(b" ")
    ttl_s = arguments.ttl(last) if blank else None
    text = argument if ttl_s is None else before
    if not text:
        raise Malformed
    refused = connection.service.values.put(key, text, ttl_s or 0, connection.service.now_s())
    return OK if refused is None else _VALUE_REFUSED[refused]


def get(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    text = connection.service.values.get(key, connection.service.now_s())
    return NIL if text is None else b"ok " + text


def delete(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    connection.service.values.delete(key)
    return OK


def push_left(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    return _push(connection, key, argument, is_left=True)


def push_right(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    return _push(connection, key, argument, is_left=False)


def _push(connection: "LockConnection", key: bytes, item: bytes, *, is_left: bool) -> bytes:
    if not item:
        raise Malformed
    service = connection.service
    found = service.values.push(key, item, service.now_s(), is_left=is_left)
    return _VALUE_REFUSED[found] if isinstance(found, ValueRefused) else b"ok %d" % found


def pop_left(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    return _pop(connection, key, is_left=True)


def pop_right(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    return _pop(connection, key, is_left=False)


def _pop(connection: "LockConnection", key: bytes, *, is_left: bool) -> bytes:
    item = connection.service.values.pop(key, connection.service.now_s(), is_left=is_left)
    return NIL if item is None else b"ok " + item


def length(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    return b"ok %d" % connection.service.values.length(key, connection.service.now_s())


def items(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    start, stop = (arguments.integer(text) for text in arguments.fields(argument, 2, 2))
    found = connection.service.values.items(key, start, stop, connection.service.now_s())
    return b"ok " + to_json([item.decode("utf-8", "replace") for item in found])


# -- the server


def authenticate(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    """It was the first request if it was one at all."""
    return ERROR


def show_stats(connection: "LockConnection", key: bytes, argument: bytes) -> bytes | None:
    return b"ok " + stats(connection.service, connection.connections)


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
