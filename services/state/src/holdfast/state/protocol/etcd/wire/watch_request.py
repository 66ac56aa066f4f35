"""Requests of a watch stream, as they come in one body."""

from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import Any, Final, NamedTuple

from holdfast.state.layer.kv.errors import KvInvalid
from holdfast.state.layer.kv.operation import UNBOUNDED, WatchRequest
from holdfast.state.protocol.etcd.wire.body import objects_of
from holdfast.state.protocol.etcd.wire.errors import WrongType, WrongTypeInStream
from holdfast.state.protocol.etcd.wire.field import (
    Message,
    enum_reader,
    list_reader,
    read_bool,
    read_bytes,
    read_int64,
)

WATCHES_MAX: Final = 64
"""In one stream."""
_FILTERS_MAX: Final = 16


class WatchCancel(NamedTuple):
    watch_id: int = 0


class WatchProgress(NamedTuple):
    """Asks how far the stream is."""


StreamRequest = WatchRequest | WatchCancel | WatchProgress


class _Filter(IntEnum):
    NOPUT = 0
    NODELETE = 1


class _Create(NamedTuple):
    key: bytes = b""
    range_end: bytes = b""
    start_revision: int = 0
    progress_notify: bool = False
    filters: tuple[_Filter, ...] = ()
    prev_kv: bool = False
    watch_id: int = 0
    fragment: bool = False


_CREATE: Final = Message(
    _Create,
    {
        "key": read_bytes,
        "range_end": read_bytes,
        "start_revision": read_int64,
        "progress_notify": read_bool,
        "filters": list_reader(
            enum_reader(_Filter, "etcdserverpb.WatchCreateRequest_FilterType"),
            _FILTERS_MAX,
            partial(KvInvalid, "too many filters in watch request"),
        ),
        "prev_kv": read_bool,
        "watch_id": read_int64,
        "fragment": read_bool,
    },
)
_CANCEL: Final = Message(WatchCancel, {"watch_id": read_int64})
_PROGRESS: Final = Message(WatchProgress, {})


def stream_requests(body: bytes) -> list[StreamRequest]:
    """In their order; a wrong type is a fault of the stream."""
    found = objects_of(body)
    try:
        requests = [_request_of(members) for members in found]
    except WrongType as error:
        raise WrongTypeInStream(error.detail) from error
    if sum(isinstance(request, WatchRequest) for request in requests) > WATCHES_MAX:
        raise KvInvalid(f"more than {WATCHES_MAX} watches in one stream")
    return requests


def _request_of(members: dict[str, Any]) -> StreamRequest:
    for name, read in _READERS.items():
        value = members.get(name)
        if value is not None:
            return read(value)
    # etcd says nothing at all to it, and its client waits for ever.
    raise KvInvalid("a watch takes a create_request, a progress_request or a cancel_request")


def _create_of(value: Any) -> WatchRequest:
    asked = _CREATE.of(value)
    return WatchRequest(
        key=asked.key
        or UNBOUNDED,  # The smallest key: with the range end that stands for no end, everything.
        range_end=asked.range_end,
        start_revision=asked.start_revision,
        progress_notify=asked.progress_notify,
        no_put=_Filter.NOPUT in asked.filters,
        no_delete=_Filter.NODELETE in asked.filters,
        prev_kv=asked.prev_kv,
        watch_id=asked.watch_id,
    )


_READERS: Final[dict[str, Callable[[Any], StreamRequest]]] = {
    "create_request": _create_of,
    "createRequest": _create_of,
    "progress_request": _PROGRESS.of,
    "progressRequest": _PROGRESS.of,
    "cancel_request": _CANCEL.of,
    "cancelRequest": _CANCEL.of,
}
