"""`holdfast serve`: the plane in one process, or one service of a plane that runs as several."""

import sys
from typing import Annotated

import typer
from fastapi import FastAPI

from holdfast.cli.options import WRONG_SETTINGS, Flags, SettingsCommand, SettingsT, settings_options
from holdfast.cli.output import failure
from holdfast.cli.streams import silence
from holdfast.common.role import Role, check_role
from holdfast.common.serving.listener import ListenError
from holdfast.common.serving.process import run
from holdfast.common.serving.server import PlaneServer
from holdfast.common.settings import PlaneSettings, SettingsError
from holdfast.gateway.app import create_app as create_gateway
from holdfast.gateway.settings import GatewaySettings
from holdfast.leases.app import create_app as create_leases
from holdfast.leases.settings import LeasesSettings
from holdfast.queue.app import create_app as create_queue
from holdfast.queue.settings import QueueSettings
from holdfast.state.app import create_app as create_state
from holdfast.state.settings import StateSettings
from holdfast.txn.app import create_app as create_txn
from holdfast.txn.settings import TxnSettings

app = typer.Typer(name="serve", add_completion=False)

_EXAMPLES = (
    "Examples:  holdfast serve  |  holdfast serve --store mem:// --listen 127.0.0.1:0  |  "
    "holdfast serve --store postgres://user@host/database  |  "
    "holdfast serve leases --store postgres://user@host/database --listen 127.0.0.1:9342 "
    "--peer-txn http://127.0.0.1:9345"
)

ServeRole = Annotated[
    Role, typer.Argument(help="Which part to run: all of the plane, or one service of a split one.")
]


@app.command(cls=SettingsCommand, epilog=_EXAMPLES)
@settings_options(GatewaySettings)
def serve(flags: Flags, role: ServeRole = Role.ALL) -> None:
    """Run the plane: gateway and all services over one store, in one process.

    Without any option: a store on disk in your data directory, open to this machine only, on port 9341. SIGTERM and
    Ctrl-C drain, then stop; a second one stops at once.

    With a role, one service of a plane that runs as several processes: they share a PostgreSQL store and a secret,
    and --peer-… says where the others are. They may start in any order.
    """
    settings, plane = _create(flags, role)

    def announce(server: PlaneServer) -> None:
        urls = ", ".join(url_of(address, is_tls=settings.is_mtls_on) for address in server.addresses)
        part = "" if role is Role.ALL else f" as {role}"
        store = "" if role is Role.GATEWAY else f" on {plane.state.store_url}"
        try:
            typer.echo(f"holdfast is ready at {urls}{part}{store}")
        except BrokenPipeError:
            silence(sys.stdout)  # The reader is gone; the plane serves all the same.

    try:
        run(plane, settings, on_started=announce)
    except ListenError as error:
        raise failure(str(error)) from None


def _create(flags: Flags, role: Role) -> tuple[PlaneSettings, FastAPI]:
    """The app of a role; each reads the environment variables of its own service first."""
    if role is Role.LEASES:
        leases = _checked(flags.build_for_start(LeasesSettings), role)
        return leases, create_leases(leases)
    if role is Role.STATE:
        state = _checked(flags.build_for_start(StateSettings), role)
        return state, create_state(state)
    if role is Role.QUEUE:
        queue = _checked(flags.build_for_start(QueueSettings), role)
        return queue, create_queue(queue)
    if role is Role.TXN:
        txn = _checked(flags.build_for_start(TxnSettings), role)
        return txn, create_txn(txn)
    gateway = _checked(flags.build_for_start(GatewaySettings), role)
    return gateway, create_gateway(gateway, role)


def _checked(settings: SettingsT, role: Role) -> SettingsT:
    try:
        check_role(settings, role)
    except SettingsError as error:
        raise failure(str(error), WRONG_SETTINGS) from None
    return settings


def url_of(address: tuple[str, int] | str, *, is_tls: bool) -> str:
    """How a client names a bound address."""
    if isinstance(address, str):
        return f"unix://{address}"
    host, port = address
    scheme = "https" if is_tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
