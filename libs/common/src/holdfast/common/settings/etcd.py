"""Settings of etcd's API: the listener of its own."""

from typing import Final

from holdfast.common.settings.flag import SettingsGroup, setting
from holdfast.common.settings.server import OptionalListen

_ETCD: Final = "keys as etcd has them"


class EtcdFields(SettingsGroup):
    """The listener for etcd's clients."""

    etcd_listen: OptionalListen = setting(
        _ETCD,
        "etcd-listen",
        "",
        "A second listener with the API of etcd alone, host:port; etcd's own is 127.0.0.1:2379. One that others reach "
        "needs a bundle, or --disable-mtls.",
        default_text="off",
    )
