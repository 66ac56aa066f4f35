"""Every service of the plane, as parts of one process or as declarations for a gateway in front of several."""

from collections.abc import Sequence

from holdfast.common.express.router import ExpressRouter
from holdfast.common.serving.drain import Drain
from holdfast.common.settings import PlaneSettings
from holdfast.common.telemetry.metrics import Registry
from holdfast.leases.app import LeasesPart
from holdfast.queue.app import QueuePart
from holdfast.state.app import StatePart
from holdfast.storage.hosting.store_app import Part
from holdfast.txn.app import TxnPart
from holdfast.txn.layers import Layers


def parts_of_plane(settings: PlaneSettings, drain: Drain, registry: Registry) -> list[Part[Layers]]:
    return [
        LeasesPart(settings, drain, registry),
        StatePart(settings, drain, registry),
        QueuePart(settings, drain, registry),
        TxnPart(settings, registry),
    ]


def declared_parts(settings: PlaneSettings) -> list[Part[Layers]]:
    """What all services declare, for a process that runs none of them."""
    return parts_of_plane(settings, Drain(), Registry())


def declared_routers(settings: PlaneSettings) -> Sequence[ExpressRouter]:
    """Their routes alone."""
    return [router for part in declared_parts(settings) for router in part.routers]
