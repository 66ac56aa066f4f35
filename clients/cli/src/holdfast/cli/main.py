"""`holdfast`: the command line. A command is imported when it is called, so that the others cost nothing."""

import platform
import sys
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from holdfast.cli.output import Output, OutputFormat, failure, print_result
from holdfast.cli.streams import broken_pipe, flushed_status, is_broken_pipe
from holdfast.common.errors import HoldfastError
from holdfast.common.standard_descriptors import open_standard_descriptors

INTERRUPTED = 130

_COMMANDS = {
    "serve": (
        "holdfast.cli.serve",
        "Run the plane in one process over one store, or one service of a plane that runs as several.",
    ),
    "store": ("holdfast.cli.store.command", "Back up, restore, verify, export, import and tend a store."),
    "lql": ("holdfast.cli.lql", "Try the query language on documents; run its vectors."),
    "client": ("holdfast.cli.client.command", "Leases and documents of a running plane."),
    "queue": (
        "holdfast.cli.queue.command",
        "Queues of a running plane: send, take and acknowledge messages.",
    ),
    "txn": ("holdfast.cli.txn", "Transactions of a running plane: prepare, decide, replay, list."),
    "tc": ("holdfast.cli.tc.command", "The nodes that decide transactions together, and whom they trust."),
    "namespace": ("holdfast.cli.namespace", "How a namespace of a running plane is searched."),
    "index": ("holdfast.cli.index", "The search index of a running plane."),
    "lock": ("holdfast.cli.lock.command", "Run a command while holding a key."),
    "locks": (
        "holdfast.cli.locks",
        "Locks and semaphores of a running plane: who holds them, and freeing them.",
    ),
    "kv": (
        "holdfast.cli.kv.command",
        "Keys of a running plane as etcd has them: put, get, del, txn, watch, lease, compact.",
    ),
    "bench": (
        "holdfast.cli.bench.command",
        "Measure a plane on this machine, beside an empty request and the bare disk.",
    ),
    "config": ("holdfast.cli.config", "Write and inspect the configuration."),
}


class PlaneGroup(TyperGroup):
    """Loads commands late, and ends every expected error with one line and a status."""

    def main(self, *arguments: Any, **more: Any) -> Any:
        open_standard_descriptors()
        try:
            return super().main(*arguments, **more)
        except SystemExit as end:
            raise SystemExit(flushed_status(end.code)) from None

    def make_context(self, *arguments: Any, **more: Any) -> Any:
        try:
            return super().make_context(*arguments, **more)
        except OSError as error:
            if is_broken_pipe(error):
                raise broken_pipe() from None  # While it was printing its help.
            raise

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        # Typer may bring its own copy of click, so the types of the base can't be named here.
        name, command, rest = super().resolve_command(ctx, args)
        if name in _COMMANDS:
            command = _imported(_COMMANDS[name][0])
            command.name = name
        return name, command, rest

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except HoldfastError as error:
            raise failure(f"{error.detail} ({error.code})") from None
        except OSError as error:
            if is_broken_pipe(error):
                raise broken_pipe() from None
            place = "" if error.filename is None else f"{error.filename}: "
            raise failure(f"{place}{error.strerror or error}") from None
        except BaseExceptionGroup as errors:
            if is_broken_pipe(errors):
                raise broken_pipe() from None
            raise
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None


def _imported(module: str) -> Any:
    """The command of a module."""
    # httpx would import a command line of its own, with rich, click and pygments; it also works without.
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
    return typer.main.get_command(import_module(module).app)


app = typer.Typer(
    cls=PlaneGroup,
    name="holdfast",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},  # For every command below it, too.
    help="One coordination plane: leases, transactional state, queues, and transactions over all of them.",
    epilog="Examples:  holdfast serve  |  holdfast store verify  |  holdfast COMMAND --help",
)


def _loaded_late() -> None:
    raise AssertionError("resolve_command puts the real command in its place")


for _name, (_, _help) in _COMMANDS.items():
    app.command(_name, help=_help)(_loaded_late)


@app.command(epilog="Example:  holdfast version --output json")
def version(output: Output = OutputFormat.TEXT) -> None:
    """Print the version of this program and of its Python."""
    from importlib.metadata import version as version_of

    members = {
        "name": "holdfast",
        "version": version_of("holdfast-plane"),
        "python": platform.python_version(),
    }
    print_result(members, f"holdfast {members['version']} (Python {members['python']})", output)
