"""The listener of dflockd's protocol as the settings of a plane say it."""

import ssl
from pathlib import Path
from typing import Final

from holdfast.common.logging import get_logger
from holdfast.common.security.bundle import read_bundle
from holdfast.common.serving.listener import ListenerDeclaration
from holdfast.common.settings import PlaneSettings, SettingsError
from holdfast.common.settings.check import is_local_listener
from holdfast.leases.layer.locks.durable.service import DurableLockService
from holdfast.leases.layer.locks.service import LockOptions, LockService
from holdfast.leases.layer.locks.table import TableLimits
from holdfast.leases.layer.locks.values import ValueLimits
from holdfast.leases.nodes.service import NodeLockService, NodeOptions
from holdfast.leases.protocol.dflockd.arguments import LINE_BYTES_MAX
from holdfast.leases.protocol.dflockd.server import LineOptions, LockServer
from holdfast.storage.port import Store

_SECRET_BYTES_MAX: Final = 64 << 10

_log = get_logger("leases.locks")


def lock_options(settings: PlaneSettings) -> LockOptions:
    return LockOptions(
        default_ttl_s=int(settings.tcp_lease_ttl_s_default),
        sweep_interval_s=settings.tcp_sweep_interval_s,
        gc_interval_s=settings.tcp_gc_interval_s,
        idle_s_max=settings.tcp_gc_idle_s_max,
        releases_with_session=settings.tcp_auto_release,
        table=TableLimits(settings.tcp_locks_max, settings.tcp_waiters_max),
        values=ValueLimits(settings.tcp_keys_max, settings.tcp_list_items_max),
    )


def lock_service(settings: PlaneSettings, store: Store) -> LockService:
    """What every protocol enters locks by: in memory or recorded in the store, of this process alone or of several."""
    options = lock_options(settings)
    if settings.tcp_durable and settings.store.startswith("mem:"):
        _log.warn(
            "locks.durable.not_kept",
            setting=settings.subject("tcp_durable"),
            reason=f"{settings.store} is lost with this process, and the locks with it",
        )
    local = DurableLockService(options, store) if settings.tcp_durable else LockService(options)
    return NodeLockService(local, store, _node_options(settings)) if store.is_shared else local


def _node_options(settings: PlaneSettings) -> NodeOptions:
    address, ttl_s = settings.tcp_nodes_listen, settings.tcp_node_ttl_s
    if is_local_listener("tcp", address):
        return NodeOptions(address, ttl_s)
    from holdfast.common.security.tls import client_context, server_context  # It is slow to import.

    bundle = read_bundle(settings.bundle)
    return NodeOptions(address, ttl_s, server_context(bundle), client_context(bundle))


def line_options(settings: PlaneSettings) -> LineOptions:
    return LineOptions(
        read_timeout_s=settings.tcp_read_timeout_s,
        write_timeout_s=settings.tcp_write_timeout_s,
        connections_max=settings.tcp_connections_max,
    )


def declared_listener(server: LockServer) -> ListenerDeclaration:
    return ListenerDeclaration(
        name="tcp",
        address=lambda settings: settings.tcp_listen,
        connections=server.connection,
        own_tls=_tls,
        # The settings refuse an address that others reach without a certificate or a secret.
        is_public=True,
        # Several planes on one machine need not each be told of a listener that none of them was asked for.
        is_optional=_is_default,
        # Its clients have no way to be told that the server stops.
        closes_at_once=True,
    )


def _is_default(settings: PlaneSettings) -> bool:
    is_named = settings.is_set("DFLOCKD_HOST") or settings.is_set("DFLOCKD_PORT")
    return settings.origin("tcp_listen") == "default" and not is_named


def _tls(settings: PlaneSettings) -> ssl.SSLContext | None:
    if settings.tcp_tls_cert is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.tcp_tls_cert, settings.tcp_tls_key)
    except OSError as error:
        raise SettingsError(
            f"{settings.subject('tcp_tls_cert')}: {settings.tcp_tls_cert} and its key cannot be used: {error}"
        ) from error
    return context


def secret_of(settings: PlaneSettings) -> bytes | None:
    """The token that is set; else the content of the file. An empty one is refused: it would let every client in."""
    if settings.tcp_auth_token is not None:
        secret, subject = settings.tcp_auth_token.get_secret_value().encode(), "tcp_auth_token"
    elif settings.tcp_auth_token_file is not None:
        secret, subject = _read(settings, settings.tcp_auth_token_file), "tcp_auth_token_file"
    else:
        return None
    if not secret.strip():
        raise SettingsError(f"{settings.subject(subject)}: the secret is empty")
    if len(secret.strip()) > LINE_BYTES_MAX or b"\n" in secret.strip():
        raise SettingsError(
            f"{settings.subject(subject)}: no client can send this secret: it has to fit into one line of {LINE_BYTES_MAX} bytes"
        )
    return secret.strip()


def _read(settings: PlaneSettings, path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_SECRET_BYTES_MAX)
    except OSError as error:
        raise SettingsError(
            f"{settings.subject('tcp_auth_token_file')}: {path} cannot be read: {error.strerror}"
        ) from error
