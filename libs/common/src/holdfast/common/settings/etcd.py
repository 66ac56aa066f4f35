"""Settings of etcd's API: the listener of its own, and what queues over its keys promise."""

from typing import Final, Literal

from holdfast.common.settings.flag import SettingsGroup, setting
from holdfast.common.settings.server import OptionalListen

_ETCD: Final = "keys as etcd has them"


class EtcdFields(SettingsGroup):
    """The listener for etcd's clients, and defaults of queues over keys."""

    etcd_listen: OptionalListen = setting(
        _ETCD,
        "etcd-listen",
        "",
        "A second listener with the API of etcd alone, host:port; etcd's own is 127.0.0.1:2379. One that others reach "
        "needs a bundle, or --disable-mtls.",
        default_text="off",
    )
    key_queue_reliability: Literal["majority", "few", "none"] = setting(
        _ETCD,
        "queue-reliability",
        "majority",
        "What an answer to a message on a queue over keys promises, unless the queue says otherwise: that it is durable, that it "
        "will be within a second, or nothing.",
    )
    key_queue_max_in_flight: int = setting(
        _ETCD,
        "queue-max-in-flight",
        16,
        "Deliveries of one consumer of a queue over keys that it has not acknowledged, unless the queue says otherwise.",
        ge=1,
        le=10_000,
    )
