"""What the gateway refuses before the key space gets to see it."""

from holdfast.state.layer.kv.errors import KvError, KvInvalid


class WrongType(KvInvalid):
    """A member of a request has a JSON type that it cannot have."""


class WrongTypeInStream(KvError):
    """The same in a stream of requests, where etcd answers 500."""

    code, status = "kv_wrong_type_in_stream", 500
