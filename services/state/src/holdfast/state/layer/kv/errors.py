"""What the key space refuses, in etcd's words: clients compare the texts."""

from typing import ClassVar

from holdfast.common.errors import HoldfastError


class KvError(HoldfastError):
    """Base of what the key space refuses; each has one text, which is etcd's."""

    code, status = "kv_refused", 400
    text: ClassVar[str] = ""

    def __init__(self, detail: str = "", *, retry_after_s: float | None = None) -> None:
        super().__init__(detail or self.text, retry_after_s=retry_after_s)


class KvInvalid(KvError):
    """The request does not make sense."""

    code = "kv_invalid"


class KeyMissing(KvInvalid):
    """A request without a key."""

    text = "etcdserver: key is not provided"


class ValueGiven(KvInvalid):
    """A put that keeps the value brings one."""

    text = "etcdserver: value is provided"


class LeaseGiven(KvInvalid):
    """A put that keeps the lease brings one."""

    text = "etcdserver: lease is provided"


class KeyNotFound(KvInvalid):
    """A put that keeps something, of a key that is not there."""

    text = "etcdserver: key not found"


class DuplicateKey(KvInvalid):
    """A transaction that changes a key twice."""

    text = "etcdserver: duplicate key given in txn request"


class TooManyOperations(KvInvalid):
    """A transaction with more operations than one may have."""

    text = "etcdserver: too many operations in txn request"


class KvRequestTooLarge(KvInvalid):
    """More bytes or more keys than one revision may carry."""

    text = "etcdserver: request is too large"


class RevisionOutOfRange(KvError):
    """A revision that cannot be read."""

    code = "kv_out_of_range"


class RevisionInFuture(RevisionOutOfRange):
    """The key space has not got there."""

    text = "etcdserver: mvcc: required revision is a future revision"


class RevisionCompacted(RevisionOutOfRange):
    """The history before it is gone."""

    text = "etcdserver: mvcc: required revision has been compacted"


class LeaseTtlTooLarge(RevisionOutOfRange):
    """A lease for longer than any may last."""

    text = "etcdserver: too large lease TTL"


class KvLeaseNotFound(KvError):
    """The lease is not there, or over."""

    code, status = "kv_lease_not_found", 404
    text = "etcdserver: requested lease not found"


class KvLeaseExists(KvError):
    """The id of a new lease is taken."""

    code, status = "kv_lease_exists", 412
    text = "etcdserver: lease already exists"


class AuthenticationOff(KvError):
    """There are no users to authenticate."""

    code, status = "kv_authentication_off", 412
    text = "etcdserver: authentication is not enabled"


class KvForbidden(KvError):
    """The key belongs to a queue, which alone may write it."""

    code, status = "kv_forbidden", 403
    text = "etcdserver: permission denied"


class QueueNotEmpty(KvError):
    """A queue with messages or consumers is not deleted."""

    code, status = "kv_queue_not_empty", 412
    text = "queue is not empty"
