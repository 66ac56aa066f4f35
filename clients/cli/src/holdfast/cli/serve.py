"""`holdfast serve`: the plane in one process."""

import typer

from holdfast.cli.options import Flags, SettingsCommand, settings_options
from holdfast.cli.output import failure
from holdfast.common.listener import ListenError
from holdfast.common.process import run
from holdfast.common.server import PlaneServer
from holdfast.gateway.app import create_app
from holdfast.gateway.settings import GatewaySettings

app = typer.Typer(name="serve", add_completion=False)

_EXAMPLES = (
    "Examples:  holdfast serve  |  holdfast serve --store mem:// --listen 127.0.0.1:0  |  "
    "holdfast serve --store postgres://user@host/database"
)


@app.command(cls=SettingsCommand, epilog=_EXAMPLES)
@settings_options(GatewaySettings)
def serve(flags: Flags) -> None:
    """Run the plane: gateway and all services over one store, in one process.

    Without any option: a store on disk in your data directory, open to this machine only, on port 9341. SIGTERM and
    Ctrl-C drain, then stop; a second one stops at once.
    """
    settings = flags.build_for_start(GatewaySettings)
    plane = create_app(settings)

    def announce(server: PlaneServer) -> None:
        urls = ", ".join(url_of(address, is_tls=settings.is_mtls_on) for address in server.addresses)
        typer.echo(f"holdfast is ready at {urls} on {plane.state.store_url}")

    try:
        run(plane, settings, on_started=announce)
    except ListenError as error:
        raise failure(str(error)) from None


def url_of(address: tuple[str, int] | str, *, is_tls: bool) -> str:
    """How a client names a bound address."""
    if isinstance(address, str):
        return f"unix://{address}"
    host, port = address
    scheme = "https" if is_tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
