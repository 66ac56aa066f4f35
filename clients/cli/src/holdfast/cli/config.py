"""`holdfast config`: write the default config file, show every setting and where it comes from."""

import json
import os
from enum import StrEnum
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Annotated

import typer
import yaml

from holdfast.cli.options import Flags
from holdfast.cli.output import Output, OutputFormat, failure
from holdfast.common.settings import PlaneSettings
from holdfast.common.settings.flag import flag_of
from holdfast.gateway.settings import GatewaySettings
from holdfast.leases.settings import LeasesSettings
from holdfast.queue.settings import QueueSettings
from holdfast.state.settings import StateSettings
from holdfast.txn.settings import TxnSettings

app = typer.Typer(
    name="config",
    no_args_is_help=True,
    add_completion=False,
    help="Write and inspect the configuration.",
    epilog="Examples:  holdfast config gen  |  holdfast config show --output json",
)

# fmt: off
GENERATED_KEYS = (
    "listen", "listen-proto", "store", "ha", "ha-lease-ttl", "default-namespace", "json-max", "json-util",
    "payload-spool-mem", "default-ttl", "max-ttl", "acquire-block", "sweeper-interval",
    "txn-replay-interval", "queue-decision-cache-ttl", "queue-decision-max-apply",
    "queue-decision-apply-timeout", "idle-sweep-grace", "idle-sweep-op-delay", "idle-sweep-max-ops",
    "idle-sweep-max-runtime", "drain-grace", "shutdown-timeout", "disable-mtls",
    "http2-max-concurrent-streams", "disable-storage-encryption", "storage-encryption-snappy", "bundle",
    "denylist-path", "logstore-commit-max-ops", "logstore-segment-size", "logstore-compaction",
    "logstore-compaction-interval", "logstore-compaction-min-segments",
    "logstore-compaction-min-reclaim-size", "logstore-compaction-delete-grace",
    "logstore-compaction-max-io-bytes-per-sec", "disk-lock-file-cache-size", "disable-mem-queue-watch",
    "tc-trust-dir", "tc-disable-auth", "tc-allow-default-ca", "self", "tc-join", "tc-fanout-timeout",
    "tc-fanout-attempts", "tc-fanout-base-delay", "tc-fanout-max-delay", "tc-fanout-multiplier",
    "tc-decision-retention", "tc-client-bundle", "s3-sse", "s3-kms-key-id", "s3-max-part-size",
    "s3-encrypt-buffer-budget", "aws-region", "aws-kms-key-id", "storage-retry-attempts",
    "storage-retry-base-delay", "storage-retry-max-delay", "storage-retry-multiplier", "log-level",
)
# fmt: on


class Service(StrEnum):
    """Whose settings: each service has its own environment prefix."""

    ALL = "all"
    GATEWAY = "gateway"
    LEASES = "leases"
    STATE = "state"
    QUEUE = "queue"
    TXN = "txn"


SETTINGS: dict[Service, type[PlaneSettings]] = {
    Service.ALL: PlaneSettings,
    Service.GATEWAY: GatewaySettings,
    Service.LEASES: LeasesSettings,
    Service.STATE: StateSettings,
    Service.QUEUE: QueueSettings,
    Service.TXN: TxnSettings,
}


_PLACES = ("HOME", "XDG_DATA_HOME", "HOLDFAST_CONFIG_DIR", "LOCKD_CONFIG_DIR")


def _defaults() -> PlaneSettings:
    """Every setting at its default, with this user's directories and nothing else from outside."""
    environ = {name: os.environ[name] for name in _PLACES if name in os.environ}
    return PlaneSettings(_environ=environ, _isolated=True)


def default_config() -> str:
    """The config file with every generated key at its default, as a comment: it sets nothing until it is edited.

    A written default would count as asked for, and a server that is asked for its bundle doesn't start without it.
    """
    defaults = _defaults()
    fields = {flag.key: PlaneSettings.model_fields[name] for name, flag in defaults.flags().items()}
    values = defaults.shown()
    lines = [
        "# Configuration of holdfast. The lines below show the defaults; remove the # before a key to set it.",
        "# Flags and environment beat this file; an empty value is the default.",
    ]
    for key in GENERATED_KEYS:
        lines.append(f"# {fields[key].description}{flag_of(fields[key]).note}")
        written = yaml.safe_dump({key: values[key]}, default_flow_style=False, width=1000).strip()
        lines.extend(f"#{line}" for line in written.splitlines())
    return "\n".join(lines) + "\n"


@app.command("gen", epilog="Examples:  holdfast config gen  |  holdfast config gen --stdout")
def generate(
    out: Annotated[
        Path | None, typer.Option("--out", help="Write here instead of <config dir>/config.yaml.")
    ] = None,
    stdout: Annotated[bool, typer.Option("--stdout", help="Print instead of writing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a configuration file that shows every default as a comment, and so changes nothing until it is edited."""
    if stdout and out is not None:
        raise failure("--stdout and --out exclude each other; give one of them", 2)
    if stdout:
        typer.echo(default_config(), nl=False)
        return
    path = out or _defaults().config_dir / "config.yaml"
    _write_private(path, default_config(), force)
    typer.echo(f"wrote default config to {path}")


def _write_private(path: Path, text: str, force: bool) -> None:
    """Write a file only its owner may read, whole or not at all."""
    if path.is_dir():
        raise failure(f"{path} is a directory; name a file")
    if path.exists() and not force:
        raise failure(f"{path} exists; use --force to overwrite it")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with NamedTemporaryFile(
            "w", dir=path.parent, prefix=".config-", delete=False, encoding="utf-8"
        ) as file:
            file.write(text)
        Path(file.name).replace(path)  # Made by tempfile with mode 0600.
    except OSError as error:
        raise failure(f"cannot write {path}: {error.strerror}") from None


@app.command("show", epilog="Examples:  holdfast config show  |  holdfast config show --service leases")
def show(
    output: Output = OutputFormat.TEXT,
    config: Annotated[str | None, typer.Option("--config", "-c", help="Config file (YAML).")] = None,
    service: Annotated[Service, typer.Option("--service", help="Whose settings to show.")] = Service.ALL,
) -> None:
    """List every key, its value and who set it."""
    settings = Flags({"config": config} if config else {}).build(SETTINGS[service])
    values = settings.shown()
    rows = [
        {"key": flag.key, "value": values[flag.key], "origin": settings.origin(name)}
        for name, flag in settings.flags().items()
    ]
    if output is OutputFormat.JSON:
        typer.echo(json.dumps(rows, indent=2))
        return
    key_width = max(len(flag.key) for flag in settings.flags().values())
    texts = [value if isinstance(value, str) else json.dumps(value) for value in values.values()]
    value_width = min(40, max(map(len, texts)))
    for row, text in zip(rows, texts, strict=True):
        typer.echo(f"{row['key']:<{key_width}}  {text:<{value_width}}  {row['origin']}")
