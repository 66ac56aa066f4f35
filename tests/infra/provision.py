"""Finding a server for the tests: ways are tried in order, and failing all of them says why each one failed."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

DOCKER_SOCKET = Path("/var/run/docker.sock")
DOCKER_ANSWER_TIMEOUT_S = 3
DOCKER_PULL_TIMEOUT_S = 60

T = TypeVar("T")


class Unavailable(Exception):
    """This way leads to no server; the text says why."""


def first_available(what: str, ways: Sequence[tuple[str, Callable[[], T]]]) -> T:
    """The server of the first way that leads to one."""
    tried: list[str] = []
    for name, take in ways:
        try:
            return take()
        except Unavailable as reason:
            tried.append(f"  {name}: {reason}")
    raise RuntimeError(f"no {what} for the tests; tried in this order:\n" + "\n".join(tried))


def container(image: str, *, port_inside: int, port: int, **environment: str) -> "DockerContainer":
    """A started container, or Unavailable if no Docker engine answers soon or the image can't be had."""
    if not os.environ.get("DOCKER_HOST") and not DOCKER_SOCKET.exists():
        raise Unavailable(f"neither DOCKER_HOST nor {DOCKER_SOCKET} names an engine")
    import docker  # Here, because loading it costs a second that most test runs can save.
    from docker.errors import DockerException
    from testcontainers.core.container import DockerContainer

    try:
        docker.from_env(timeout=DOCKER_ANSWER_TIMEOUT_S).ping()
        client = docker.from_env(timeout=DOCKER_PULL_TIMEOUT_S)
        if not client.images.list(name=image):
            client.images.pull(image)
        made = DockerContainer(image).with_bind_ports(port_inside, port)
        for name, value in environment.items():
            made = made.with_env(name, value)
        return made.start()
    except (DockerException, OSError) as error:
        raise Unavailable(f"{type(error).__name__}: {str(error)[:200]}") from error
