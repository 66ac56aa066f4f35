"""`holdfast lock`: run a command while holding a key."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from holdfast.cli.client.print import exports, printable
from holdfast.cli.client.target import Target, block_s, duration_s, takes_target
from holdfast.cli.lock.guard import Guard, prepared
from holdfast.cli.output import failure
from holdfast.cli.streams import is_terminal
from holdfast.client import AsyncClient, ClientError, LeaseHeld, LeaseLost
from holdfast.client.aio.session import Session
from holdfast.client.environment import PREFIXES

NOT_OBTAINED: Final = 75
LOST: Final = 76
NOT_EXECUTABLE: Final = 126
NOT_FOUND: Final = 127

_PASSED_ON: Final = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_ENDING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_FROM_THE_TERMINAL: Final = (signal.SIGINT, signal.SIGQUIT)

app = typer.Typer(name="lock", add_completion=False)


@app.command(
    epilog="Examples:  holdfast lock nightly -- ./backup.sh  |  "
    "holdfast lock deploy --ttl 1m --wait nowait -- make deploy"
)
@takes_target(key=False)
def lock(
    target: Target,
    key: Annotated[str, typer.Argument(metavar="KEY", help="What to hold.")],
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND…", help="What to run.")],
    ttl: Annotated[str, typer.Option("--ttl", metavar="DURATION", help="Renewed at half of it.")] = "30s",
    wait: Annotated[
        str, typer.Option("--wait", metavar="DURATION", help="For the key; 0 or forever, nowait.")
    ] = "10s",
    grace: Annotated[
        str,
        typer.Option("--grace", metavar="DURATION", help="From SIGTERM to SIGKILL when the lease is lost."),
    ] = "10s",
    owner: Annotated[str, typer.Option("--owner", help="Default: host name and pid.")] = "",
) -> None:
    """Run a command while holding a key, and end with its exit status.

    The command finds its lease in the environment, so that `holdfast client` works under it: what it stages there is
    committed when it ends with 0, and rolled back otherwise. Signals are passed on. When the lease is lost, the
    command gets SIGTERM and later SIGKILL.

    Exit status: the command's own (128 + n after signal n); 75 another holder has the key, 76 the lease was
    lost, 126 and 127 the command can't be run or is not there, 1 anything else.

    When this program itself is killed, the command is killed too (on Linux), and with it what it started, except on a
    terminal, or what moved to a process group of its own.
    """
    work = _Lock(
        key, command, ttl_s=duration_s(ttl), block_s=block_s(wait), grace_s=max(0.0, duration_s(grace))
    )
    raise typer.Exit(asyncio.run(work.run(target, owner)))


class _Lock:
    """One run: waits for the key, then for the command or the end of the lease, whichever comes first."""

    def __init__(
        self, key: str, command: Sequence[str], *, ttl_s: float, block_s: float | None, grace_s: float
    ) -> None:
        self._key = key
        self._command = command
        self._ttl_s = ttl_s
        self._block_s = block_s
        self._grace_s = grace_s
        self._process: asyncio.subprocess.Process | None = None
        # On a terminal the command stays in our group, so that job control reaches both. Elsewhere it leads its
        # own, so that everything it started can be stopped with it.
        self._is_on_terminal = is_terminal(sys.stdin)
        self._guard: Guard | None = None
        self._ended_by = 0

    async def run(self, target: Target, owner: str) -> int:
        """The exit status."""
        waiting = asyncio.current_task()
        assert waiting is not None, "this runs in a task"
        for number in _PASSED_ON:
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal, number, waiting)
        try:
            async with target.async_client() as client:
                return await self._hold(client, target, owner)
        except LeaseHeld as error:
            typer.echo(f"error: {printable(str(error))}", err=True)
            return NOT_OBTAINED
        except asyncio.CancelledError:
            if not self._ended_by:
                raise
            return 128 + self._ended_by

    def _on_signal(self, number: signal.Signals, waiting: "asyncio.Task[object]") -> None:
        if self._process is None:
            if number in _ENDING:
                self._ended_by = number
                waiting.cancel()
        elif not (self._is_on_terminal and number in _FROM_THE_TERMINAL):  # The command got those itself.
            self._signal(number)

    async def _hold(self, client: AsyncClient, target: Target, owner: str) -> int:
        session = await client.acquire(
            self._key,
            ttl_s=self._ttl_s,
            block_s=self._block_s,
            owner=owner or None,
            namespace=target.namespace or None,
        )
        server = ",".join(endpoint.name for endpoint in client.endpoints)
        status = await self._start(session, server)
        if status == 0:
            status = await self._until_ended(session)
        if self._guard is not None:
            self._guard.dismiss()
        return await self._release(session, status)

    async def _start(self, session: Session, server: str) -> int:
        lease = {PREFIXES[0] + name: value for name, value in exports(session.lease, server)}
        if not self._is_on_terminal:
            self._guard = Guard()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                env={**os.environ, **lease},
                process_group=None if self._is_on_terminal else 0,
                preexec_fn=prepared(self._guard),
            )
        except FileNotFoundError:
            typer.echo(f"error: {self._command[0]}: command not found", err=True)
            return NOT_FOUND
        except OSError as error:
            typer.echo(f"error: {self._command[0]}: {error.strerror}", err=True)
            return NOT_EXECUTABLE
        except subprocess.SubprocessError as error:  # What watches over the command is gone already.
            raise failure(f"the command was not started: {error}") from None
        return 0

    async def _until_ended(self, session: Session) -> int:
        assert self._process is not None, "started before"
        ended = asyncio.ensure_future(self._process.wait())
        lost = asyncio.ensure_future(session.lost.wait())
        try:
            await asyncio.wait({ended, lost}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                typer.echo(f"error: {printable(str(session.lost_because))}; the command is stopped", err=True)
                await self._stop(ended)
                return LOST
        finally:
            lost.cancel()
        return _status_of(await ended)

    async def _stop(self, ended: "asyncio.Future[int]") -> None:
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)  # What is stopped would not see the first one.
        await asyncio.wait({ended}, timeout=self._grace_s)
        self._signal(signal.SIGKILL)  # Also to what the command left behind.
        await ended

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "started before"
        try:
            if self._is_on_terminal:
                self._process.send_signal(number)
            else:
                os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return  # It has ended meanwhile.

    async def _release(self, session: Session, status: int) -> int:
        try:
            await session.release(rollback=status != 0)
        except LeaseLost as error:
            typer.echo(f"error: {printable(str(error))}", err=True)
            return LOST
        except ClientError as error:
            raise failure(f"the command ended with {status}, but the key is not released: {error}") from None
        return status


def _status_of(returned: int) -> int:
    """As a shell tells it."""
    return returned if returned >= 0 else 128 - returned
