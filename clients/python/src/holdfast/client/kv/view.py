"""What the server tells about keys and leases of the key space, as values."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from holdfast.client.errors import UnexpectedAnswer
from holdfast.client.kv.fields import read_int64, read_octets, read_octets_list
from holdfast.client.wire.call import Members


@dataclass(frozen=True, slots=True)
class KeyValue:
    """A key at one revision. `version` counts its puts since it was created; `lease` 0 is none."""

    key: bytes
    value: bytes = b""
    create_revision: int = 0
    mod_revision: int = 0
    version: int = 0
    lease: int = 0

    @classmethod
    def read(cls, members: Members) -> "KeyValue":
        return cls(
            key=read_octets(members, "key"),
            value=read_octets(members, "value"),
            create_revision=read_int64(members, "create_revision"),
            mod_revision=read_int64(members, "mod_revision"),
            version=read_int64(members, "version"),
            lease=read_int64(members, "lease"),
        )


@dataclass(frozen=True, slots=True)
class KvPutResult:
    """`prev_kv` is what was there, if it was asked for."""

    revision: int
    prev_kv: KeyValue | None
    raw: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def read(cls, members: Members) -> "KvPutResult":
        return cls(read_revision(members), _previous(members), members.raw)


@dataclass(frozen=True, slots=True)
class KvGetResult:
    """`count` is the number of keys in the range, also when a limit left some out: then there is `more`."""

    revision: int
    kvs: tuple[KeyValue, ...]
    count: int
    more: bool
    raw: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def read(cls, members: Members) -> "KvGetResult":
        return cls(
            revision=read_revision(members),
            kvs=tuple(KeyValue.read(one) for one in members.items("kvs")),
            count=read_int64(members, "count"),
            more=members.boolean("more"),
            raw=members.raw,
        )

    @property
    def first(self) -> KeyValue | None:
        """The only one, when one key was read; None if it is not there."""
        return self.kvs[0] if self.kvs else None


@dataclass(frozen=True, slots=True)
class KvDeleteResult:
    """How many keys are gone. `prev_kvs` is what they were, if it was asked for."""

    revision: int
    deleted: int
    prev_kvs: tuple[KeyValue, ...]
    raw: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def read(cls, members: Members) -> "KvDeleteResult":
        return cls(
            revision=read_revision(members),
            deleted=read_int64(members, "deleted"),
            prev_kvs=tuple(KeyValue.read(one) for one in members.items("prev_kvs")),
            raw=members.raw,
        )


@dataclass(frozen=True, slots=True)
class KvTxnResult:
    """`succeeded` says which branch ran; `results` has one for each of its operations, in their order."""

    revision: int
    succeeded: bool
    results: "tuple[KvResult, ...]"
    raw: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def read(cls, members: Members) -> "KvTxnResult":
        return cls(
            revision=read_revision(members),
            succeeded=members.boolean("succeeded"),
            results=tuple(_of_txn(one) for one in members.items("responses")),
            raw=members.raw,
        )


KvResult = KvPutResult | KvGetResult | KvDeleteResult | KvTxnResult


@dataclass(frozen=True, slots=True)
class KvEvent:
    """A change of a key. Of a deleted one `kv` has only the key and the revision; `prev_kv` is there if it was asked for."""

    type: Literal["PUT", "DELETE"]
    kv: KeyValue
    prev_kv: KeyValue | None
    raw: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def read(cls, members: Members) -> "KvEvent":
        kind = members.text("type") or "PUT"
        if kind not in ("PUT", "DELETE"):
            raise UnexpectedAnswer(f"an event of the unknown type {kind!r}")
        return cls(
            type="PUT" if kind == "PUT" else "DELETE",
            kv=KeyValue.read(members.inner("kv")),
            prev_kv=_previous(members),
            raw=members.raw,
        )


@dataclass(frozen=True, slots=True)
class KvLease:
    """A lease that was granted; the server may have made its time longer."""

    id: int
    ttl_s: int
    revision: int
    raw: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def read(cls, members: Members) -> "KvLease":
        return cls(read_int64(members, "ID"), read_int64(members, "TTL"), read_revision(members), members.raw)


@dataclass(frozen=True, slots=True)
class KvLeaseState:
    """What is left of a lease. `ttl_s` is negative when it is over, or never was."""

    id: int
    ttl_s: int
    granted_ttl_s: int
    keys: tuple[bytes, ...]
    raw: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def read(cls, members: Members) -> "KvLeaseState":
        return cls(
            id=read_int64(members, "ID"),
            ttl_s=read_int64(members, "TTL"),
            granted_ttl_s=read_int64(members, "grantedTTL"),
            keys=read_octets_list(members, "keys"),
            raw=members.raw,
        )

    @property
    def is_over(self) -> bool:
        return self.ttl_s < 0


def read_revision(members: Members) -> int:
    """The revision of the key space that an answer was given at."""
    return read_int64(members.inner("header"), "revision")


def _previous(members: Members) -> KeyValue | None:
    return KeyValue.read(members.inner("prev_kv")) if "prev_kv" in members.raw else None


def _of_txn(members: Members) -> KvResult:
    readers: dict[str, Callable[[Members], KvResult]] = {
        "response_put": KvPutResult.read,
        "response_range": KvGetResult.read,
        "response_delete_range": KvDeleteResult.read,
        "response_txn": KvTxnResult.read,
    }
    for name, read in readers.items():
        if name in members.raw:
            return read(members.inner(name))
    raise UnexpectedAnswer("a transaction with a result of an unknown kind")
