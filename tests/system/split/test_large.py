"""Large bodies through a plane of five processes: the same bytes come out, and no process holds many of them."""

from collections.abc import Callable
from multiprocessing.context import ForkServerContext

import httpx
import pytest

from holdfast.common.role import Role
from tests.infra.memory import taking_little_memory
from tests.system.split.plane import SplitPlane
from tests.wire.lockd.test_large import move_100_mb
from tests.wire.lockd.test_queue_large import move_64_mib


@pytest.mark.long
@pytest.mark.parametrize(
    ("service", "move"),
    [pytest.param(Role.STATE, move_100_mb, id="state"), pytest.param(Role.QUEUE, move_64_mib, id="queue")],
)
async def test_large_bodies_take_less_than_64_mb_of_memory_in_every_process(
    processes: ForkServerContext, postgres_url: str, service: Role, move: Callable[[httpx.Client], None]
) -> None:
    async with SplitPlane(processes, postgres_url).running() as plane:
        with (
            httpx.Client(base_url=plane.url, timeout=120) as client,
            taking_little_memory(plane.pid(Role.GATEWAY), plane.pid(service)),
        ):
            move(client)
