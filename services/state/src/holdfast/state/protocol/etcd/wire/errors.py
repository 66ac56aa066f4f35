"""What the gateway refuses by itself, in etcd's words."""

from holdfast.state.layer.kv.errors import KvError, KvInvalid


class WrongType(KvInvalid):
    """A member of a request has a JSON type that it cannot have."""


class UnknownError(KvError):
    """What etcd has a text for, and no number: it answers 500."""

    code, status = "kv_unknown", 500


class WrongTypeInStream(UnknownError):
    """A wrong type in a stream of requests."""

    code = "kv_wrong_type_in_stream"


class SessionExpired(UnknownError):
    """The lease of a lock or a candidate ended while it waited."""

    code = "kv_session_expired"
    text = "mutex: session is expired"


class NotLeader(UnknownError):
    """The caller speaks for a leader that is none any more."""

    code = "kv_not_leader"
    text = "election: not leader"


class NoLeader(UnknownError):
    """The election has no leader now."""

    code = "kv_no_leader"
    text = "election: no leader"
