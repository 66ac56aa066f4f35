"""What a client asks of the key space, and what it is told: plain values, free of any wire."""

from enum import IntEnum
from typing import NamedTuple, Union

UNBOUNDED = b"\0"
"""As the end of a range: every key from its first one on."""


class KeyValue(NamedTuple):
    """A key as of one revision. Of a deleted key there is only the key and the revision that deleted it."""

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int = 0


class Event(NamedTuple):
    """One key was put or deleted. `previous` is what it was before, None: it was not there."""

    kv: KeyValue
    previous: KeyValue | None

    @property
    def is_delete(self) -> bool:
        return self.kv.version == 0


class SortOrder(IntEnum):
    NONE = 0
    ASCEND = 1
    DESCEND = 2


class SortTarget(IntEnum):
    KEY = 0
    VERSION = 1
    CREATE = 2
    MOD = 3
    VALUE = 4


class CompareResult(IntEnum):
    EQUAL = 0
    GREATER = 1
    LESS = 2
    NOT_EQUAL = 3


class CompareTarget(IntEnum):
    VERSION = 0
    CREATE = 1
    MOD = 2
    VALUE = 3
    LEASE = 4


class PutRequest(NamedTuple):
    key: bytes
    value: bytes = b""
    lease: int = 0
    prev_kv: bool = False
    ignore_value: bool = False
    ignore_lease: bool = False


class RangeRequest(NamedTuple):
    """An empty `range_end` means the key alone; a limit of 0 all, a revision of 0 now."""

    key: bytes
    range_end: bytes = b""
    limit: int = 0
    revision: int = 0
    sort_order: SortOrder = SortOrder.NONE
    sort_target: SortTarget = SortTarget.KEY
    keys_only: bool = False
    count_only: bool = False
    min_mod_revision: int = 0
    max_mod_revision: int = 0
    min_create_revision: int = 0
    max_create_revision: int = 0


class DeleteRangeRequest(NamedTuple):
    key: bytes
    range_end: bytes = b""
    prev_kv: bool = False


class Compare(NamedTuple):
    """`operand` is bytes for VALUE, else a number. With a `range_end` it has to hold for every key of the range."""

    key: bytes
    range_end: bytes = b""
    result: CompareResult = CompareResult.EQUAL
    target: CompareTarget = CompareTarget.VERSION
    operand: int | bytes = 0


class TxnRequest(NamedTuple):
    compare: "tuple[Compare, ...]" = ()
    success: "tuple[Operation, ...]" = ()
    failure: "tuple[Operation, ...]" = ()


Operation = Union[PutRequest, RangeRequest, DeleteRangeRequest, TxnRequest]  # noqa: UP007 - refers to itself


class PutResult(NamedTuple):
    """`revision` is that of the key space after the operation; of a range within a transaction, the one it saw."""

    revision: int
    previous: KeyValue | None = None
    """If it was asked for."""


class RangeResult(NamedTuple):
    """`total` is the number of all keys in the range, however many were asked for; `more`: some were cut off by the limit."""

    revision: int
    kvs: list[KeyValue]
    more: bool
    total: int


class DeleteRangeResult(NamedTuple):
    revision: int
    deleted: int
    previous: list[KeyValue]
    """If they were asked for."""


class TxnResult(NamedTuple):
    """One result for each operation of the branch that ran, in their order."""

    revision: int
    succeeded: bool
    results: "list[Result]"


Result = Union[PutResult, RangeResult, DeleteRangeResult, TxnResult]  # noqa: UP007 - refers to itself


class WatchRequest(NamedTuple):
    """`start_revision` 0 means from now on. One of a progress or a cancel is a request of its own on the wire."""

    key: bytes
    range_end: bytes = b""
    start_revision: int = 0
    progress_notify: bool = False
    no_put: bool = False
    no_delete: bool = False
    prev_kv: bool = False
    watch_id: int = 0


class LeaseState(NamedTuple):
    """`ttl_s` is what is left in whole seconds, rounded down; `keys` if they were asked for."""

    lease_id: int
    ttl_s: int
    granted_ttl_s: int
    keys: list[bytes]
