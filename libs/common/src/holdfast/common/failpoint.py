"""Named places where a test can make the process fail: `HOLDFAST_FAILPOINT=name:action[,name:action…]`.

Actions: `crash` (SIGKILL to itself), `error` (raises FailpointError), `skip` (the caller leaves the guarded
step out), `sleep(MS)`. A leading count, `3*crash`, lets the first two hits pass; a trailing one, `error*2`,
stops after two. A place costs one look at an empty dict while nothing is armed:

    if failpoint.ARMED and failpoint.hit("journal.sync"): ...   # True means: skip the step
"""

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


class FailpointError(OSError):
    """Raised at a failpoint armed with `error`; an OSError because it stands in for a failing device."""


@dataclass(slots=True)
class _Action:
    verb: str
    sleep_ms: int
    passes_left: int  # Hits that go by before the action starts.
    runs_left: int  # Hits that act; -1 is for ever.


ARMED: dict[str, _Action] = {}

_SPEC = re.compile(r"^(?:(\d+)\*)?(crash|error|skip|sleep\((\d+)\))(?:\*(\d+))?$")


def arm(spec: str) -> None:
    """Add the failpoints of `name:action,name:action`; a wrong spec is a ValueError that names itself."""
    for item in filter(None, spec.split(",")):
        name, _, action = item.partition(":")
        match = _SPEC.match(action)
        if not name or match is None:
            raise ValueError(
                f"HOLDFAST_FAILPOINT: {item!r} is not name:action (crash, error, skip, sleep(MS))"
            )
        first, verb, sleep_ms, runs = match.groups()
        ARMED[name] = _Action(
            verb=verb.partition("(")[0],
            sleep_ms=int(sleep_ms or 0),
            passes_left=int(first or 1) - 1,
            runs_left=int(runs) if runs else -1,
        )


def disarm() -> None:
    """Forget every failpoint."""
    ARMED.clear()


@contextmanager
def armed(spec: str) -> Iterator[None]:
    """Arm for the length of a `with` block."""
    arm(spec)
    try:
        yield
    finally:
        disarm()


def hit(name: str) -> bool:
    """Do what `name` is armed with; True tells the caller to leave the guarded step out."""
    action = ARMED.get(name)
    if action is None:
        return False
    if action.passes_left > 0:
        action.passes_left -= 1
        return False
    if action.runs_left == 0:
        return False
    if action.runs_left > 0:
        action.runs_left -= 1
    if action.verb == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    if action.verb == "error":
        raise FailpointError(f"failpoint {name}")
    if action.verb == "sleep":
        time.sleep(action.sleep_ms / 1000)
    return action.verb == "skip"


arm(os.environ.get("HOLDFAST_FAILPOINT", ""))
