"""What can be done with keys, alone or in a transaction, and how each operation is written."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from holdfast.client.errors import InvalidArgument
from holdfast.client.kv.fields import Octets, octets, present

Order = Literal["ASCEND", "DESCEND"]
SortTarget = Literal["KEY", "VERSION", "CREATE", "MOD", "VALUE"]
CompareResult = Literal["=", "!=", ">", "<"]

_ZERO: Final = b"\0"
_RESULTS: Final = {"=": "EQUAL", "!=": "NOT_EQUAL", ">": "GREATER", "<": "LESS"}
_OPERANDS: Final = {
    "VERSION": "version",
    "CREATE": "create_revision",
    "MOD": "mod_revision",
    "VALUE": "value",
    "LEASE": "lease",
}


def prefix_end(prefix: bytes) -> bytes:
    """The first key after all that begin so; a zero byte, which stands for no end, if there is none."""
    cut = prefix.rstrip(b"\xff")
    return cut[:-1] + bytes([cut[-1] + 1]) if cut else _ZERO


def span_members(key: Octets, range_end: Octets, *, prefix: bool, from_key: bool) -> dict[str, object]:
    """Which keys are meant: one, those up to an end, those with a prefix, or all from one on."""
    begin, end = octets(key), octets(range_end)
    if (bool(end), prefix, from_key).count(True) > 1:
        raise InvalidArgument("give one of range_end, prefix and from_key")
    if prefix:
        end = prefix_end(begin)
    elif from_key:
        end = _ZERO
    if end and not begin:
        begin = _ZERO  # etcd has no empty key: the first one is a zero byte.
    return present({"key": begin, "range_end": end})


@dataclass(frozen=True, slots=True)
class PutOp:
    """Set a key. `ignore_value` and `ignore_lease` keep what it has."""

    key: Octets
    value: Octets = b""
    lease: int = 0
    prev_kv: bool = False
    ignore_value: bool = False
    ignore_lease: bool = False

    def members(self) -> dict[str, object]:
        return present(
            {
                "key": octets(self.key),
                "value": octets(self.value),
                "lease": self.lease,
                "prev_kv": self.prev_kv,
                "ignore_value": self.ignore_value,
                "ignore_lease": self.ignore_lease,
            }
        )


@dataclass(frozen=True, slots=True)
class GetOp:
    """Read one key or many, now or at an older `revision`. `limit`: 0 is all."""

    key: Octets
    range_end: Octets = b""
    prefix: bool = False
    from_key: bool = False
    limit: int = 0
    revision: int = 0
    order: Order | None = None
    sort_by: SortTarget = "KEY"
    keys_only: bool = False
    count_only: bool = False

    def members(self) -> dict[str, object]:
        return {
            **span_members(self.key, self.range_end, prefix=self.prefix, from_key=self.from_key),
            **present(
                {
                    "limit": self.limit,
                    "revision": self.revision,
                    "sort_order": self.order,
                    "sort_target": self.sort_by if self.sort_by != "KEY" else None,
                    "keys_only": self.keys_only,
                    "count_only": self.count_only,
                }
            ),
        }


@dataclass(frozen=True, slots=True)
class DeleteOp:
    """Delete one key or many, all in one revision."""

    key: Octets
    range_end: Octets = b""
    prefix: bool = False
    from_key: bool = False
    prev_kv: bool = False

    def members(self) -> dict[str, object]:
        return {
            **span_members(self.key, self.range_end, prefix=self.prefix, from_key=self.from_key),
            **present({"prev_kv": self.prev_kv}),
        }


@dataclass(frozen=True, slots=True)
class Compare:
    """A condition of a transaction: `Compare.version("a", "=", 0)` holds when there is no such key.

    With `prefix` or `range_end` each of those keys must satisfy it.
    """

    target: Literal["VERSION", "CREATE", "MOD", "VALUE", "LEASE"]
    key: Octets
    result: CompareResult
    operand: int | Octets
    range_end: Octets = b""
    prefix: bool = False

    @classmethod
    def version(
        cls, key: Octets, result: CompareResult, number: int, *, range_end: Octets = b"", prefix: bool = False
    ) -> "Compare":
        """How often it was put since it was created; 0: it is not there."""
        return cls("VERSION", key, result, number, range_end, prefix)

    @classmethod
    def create(
        cls,
        key: Octets,
        result: CompareResult,
        revision: int,
        *,
        range_end: Octets = b"",
        prefix: bool = False,
    ) -> "Compare":
        """The revision that created it; 0: it is not there."""
        return cls("CREATE", key, result, revision, range_end, prefix)

    @classmethod
    def mod(
        cls,
        key: Octets,
        result: CompareResult,
        revision: int,
        *,
        range_end: Octets = b"",
        prefix: bool = False,
    ) -> "Compare":
        """The revision that put it last; 0: it is not there."""
        return cls("MOD", key, result, revision, range_end, prefix)

    @classmethod
    def value(
        cls,
        key: Octets,
        result: CompareResult,
        value: Octets,
        *,
        range_end: Octets = b"",
        prefix: bool = False,
    ) -> "Compare":
        """Its value, byte by byte. Never holds for a key that is not there."""
        return cls("VALUE", key, result, octets(value), range_end, prefix)

    @classmethod
    def lease(
        cls,
        key: Octets,
        result: CompareResult,
        lease_id: int,
        *,
        range_end: Octets = b"",
        prefix: bool = False,
    ) -> "Compare":
        """The lease it ends with; 0: none."""
        return cls("LEASE", key, result, lease_id, range_end, prefix)

    def members(self) -> dict[str, object]:
        if self.result not in _RESULTS:
            raise InvalidArgument(f"{self.result!r} compares nothing; there are =, !=, > and <")
        return {
            **span_members(self.key, self.range_end, prefix=self.prefix, from_key=False),
            "target": self.target,
            "result": _RESULTS[self.result],
            **present({_OPERANDS[self.target]: self.operand}),
        }


@dataclass(frozen=True, slots=True)
class TxnOp:
    """`success` if all of `compare` holds, else `failure`; all writes are one revision."""

    compare: Sequence[Compare] = ()
    success: Sequence["KvOp"] = ()
    failure: Sequence["KvOp"] = ()

    def members(self) -> dict[str, object]:
        return present(
            {
                "compare": [one.members() for one in self.compare],
                "success": [_in_txn(one) for one in self.success],
                "failure": [_in_txn(one) for one in self.failure],
            }
        )


KvOp = PutOp | GetOp | DeleteOp | TxnOp

_NAMES: Final[dict[type[KvOp], str]] = {
    PutOp: "request_put",
    GetOp: "request_range",
    DeleteOp: "request_delete_range",
    TxnOp: "request_txn",
}


def _in_txn(operation: KvOp) -> dict[str, object]:
    return {_NAMES[type(operation)]: operation.members()}
