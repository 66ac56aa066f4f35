"""A server process: an app served as its settings say, from logging to the last flushed span."""

import ctypes
import ssl
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from fastapi import FastAPI

from holdfast.common.errors import HoldfastError
from holdfast.common.logging import configure_logging, get_logger
from holdfast.common.role import Role, check_role
from holdfast.common.security.bundle import read_bundle, read_denylist
from holdfast.common.security.trust import pem_of, read_trust
from holdfast.common.serving.app import parts_of
from holdfast.common.serving.listener import Listener, ListenError
from holdfast.common.serving.server import PlaneServer, ServeOptions, serve
from holdfast.common.settings import PlaneSettings, SettingsError
from holdfast.common.telemetry.setup import setup_telemetry

SettingsT = TypeVar("SettingsT", bound=PlaneSettings)

_log = get_logger("server.lifecycle.init")

_OPEN: Final = (
    "served without TLS on addresses that others may reach: every client that reaches them may read and "
    "write everything; for TLS give a server bundle (--bundle), for this machine alone listen on 127.0.0.1"
)

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
MAPPED_BYTES_MIN: Final = 4 << 20
"""Larger than any piece of a stream."""
FREED_BYTES_KEPT: Final = 16 << 20


def main(
    settings_cls: type[SettingsT], create_app: Callable[[SettingsT], FastAPI], role: Role = Role.ALL
) -> int:
    """`python -m` of a service: settings from environment and file, then serve. Returns the exit status."""
    try:
        settings = settings_cls()
        settings.check_start()
        check_role(settings, role)
        run(create_app(settings), settings)
    except SettingsError as error:
        sys.stderr.writelines(f"error: {line}\n" for line in str(error).splitlines())
        return 2
    except (HoldfastError, ListenError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def run(
    app: FastAPI, settings: PlaneSettings, *, on_started: Callable[[PlaneServer], None] | None = None
) -> None:
    """Serve until a signal. What stops the start (store, listener, bundle) reaches the caller as it is."""
    keep_freed_memory()
    configure_logging(settings.log_level)
    settings.log_ignored(_log)
    parts = parts_of(app)
    telemetry = setup_telemetry(
        settings.otlp_endpoint,
        parts.service,
        parts.registry,
        sample_ratio=settings.otlp_sample_ratio,
        scheme="https" if settings.is_mtls_on else "http",
    )
    parts.hooks.tracer = telemetry.tracer
    if settings.is_mtls_on:
        from holdfast.common.security.coordinator_peers import confine_coordinators  # As in `bundle.py`.

        confine_coordinators(parts.hooks, settings)
    listeners = listeners_of(app, settings)
    for listener in listeners:
        if listener.is_open:
            _log.warn("server.open", listen=listener.address, detail=_OPEN)
    try:
        serve(app, *listeners, options=_serve_options(settings), on_started=on_started)
    finally:
        telemetry.shutdown()


def keep_freed_memory() -> None:
    """Let glibc use freed memory again.

    By itself it gives pieces of streamed bodies back to the kernel, one by one, and gets each next one page by page, zeroed:
    that halves the speed of large bodies. Other allocators are left as they are.
    """
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES_MIN)
        mallopt(_M_TRIM_THRESHOLD, FREED_BYTES_KEPT)


def listeners_of(app: FastAPI, settings: PlaneSettings) -> list[Listener]:
    """What an app listens on with these settings."""
    tls = _tls(settings) if settings.is_mtls_on else None
    found = [declared.at(settings, tls) for declared in parts_of(app).listeners]
    return [listener for listener in found if listener is not None]


def _tls(settings: PlaneSettings) -> ssl.SSLContext:
    from holdfast.common.security.tls import server_context  # As in `bundle.py`.

    more_client_ca = pem_of(read_trust(settings.tc_trust_dir))
    return server_context(read_bundle(settings.bundle), more_client_ca=more_client_ca)


def _serve_options(settings: PlaneSettings) -> ServeOptions:
    return ServeOptions(
        disable_mtls=settings.mtls_disabled or settings.open_without_bundle,
        is_express=settings.express,
        drain_grace_s=settings.drain_grace_s,
        shutdown_timeout_s=settings.shutdown_timeout_s,
        accepts_peer=_peer_check(settings) if settings.is_mtls_on else None,
    )


def _peer_check(settings: PlaneSettings) -> Callable[[bytes], bool] | None:
    """Refuses the certificates that the bundle or the denylist file names; None if they name none."""
    from cryptography import x509

    denied = read_bundle(settings.bundle).denied_serials
    if settings.denylist_path is not None:
        denied |= read_denylist(settings.denylist_path)
    if not denied:
        return None
    return lambda certificate: x509.load_der_x509_certificate(certificate).serial_number not in denied
