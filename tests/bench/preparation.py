"""What has to be in a plane before a kind of load finds what it asks for."""

from typing import Final

from holdfast.cli.bench.load import PAGE_GROUPS, PAGE_KEYS
from holdfast.cli.bench.measure import Server, drive
from holdfast.cli.bench.query import INDEXED, document
from holdfast.cli.bench.query import Plane as QueriedPlane
from tests.bench import c_load

CLIENTS: Final = 16
_DOCUMENTS: Final = PAGE_KEYS * PAGE_GROUPS


def prepare(server: Server, kind: str) -> None:
    """The keys that are read, or the documents that are found."""
    if kind == "read":
        drive(server, "lock", concurrency=CLIENTS, seconds=0.2, keys=CLIENTS, load=c_load.command)
    elif kind == "query":
        _publish(server)


def _publish(server: Server) -> None:
    plane = QueriedPlane(server, _DOCUMENTS)
    try:
        for number in range(_DOCUMENTS):
            plane.publish(INDEXED, f"queried-{number:04d}", document(number))
        plane.wait_for_index()
    finally:
        plane.close()
