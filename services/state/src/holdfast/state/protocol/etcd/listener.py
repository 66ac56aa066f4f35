"""The listener of etcd's API as the settings of a plane say it, and the versions that its clients are told."""

from typing import Final

from holdfast.common.serving.listener import ListenerDeclaration

SERVER_VERSION: Final = "3.5.17"
CLUSTER_VERSION: Final = "3.5.0"

LISTENER: Final = ListenerDeclaration(
    name="etcd",
    address=lambda settings: settings.etcd_listen,
    paths=("/v3/", "/v3beta/", "/v3alpha/", "/version", "/health"),
    # etcd3gw takes them apart as three whole numbers, and from 3.4 on asks below /v3.
    version={"etcdserver": SERVER_VERSION, "etcdcluster": CLUSTER_VERSION},
)
