"""Rules that join several settings; each returns the problems it finds, ready to be shown."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.common.security.bundle import InvalidBundle
from holdfast.common.security.trust import find_client_bundle
from holdfast.common.settings.value import is_loopback, parse_host_port
from holdfast.common.sizes import format_duration

if TYPE_CHECKING:
    from holdfast.common.settings.plane import PlaneSettings


def problems(settings: "PlaneSettings") -> Iterator[str]:
    """What is wrong on any machine."""
    yield from _lease_problems(settings)
    yield from _listener_problems(settings)
    yield from _cluster_problems(settings)
    yield from _tcp_problems(settings)
    if settings.store.startswith("aws://") and not settings.aws_region:
        yield "store aws:// needs a region: set --aws-region, HOLDFAST_AWS_REGION or AWS_REGION"
    if settings.storage_encryption_snappy and settings.storage_encryption_disabled:
        yield (
            f"{settings.subject('storage_encryption_snappy')}: snappy works only with storage encryption, "
            f"which {settings.subject('storage_encryption_disabled')} turns off"
        )
    if settings.profiling_metrics_enabled and not settings.metrics_listen:
        yield f"{settings.subject('profiling_metrics_enabled')} needs --metrics-listen"


def _lease_problems(settings: "PlaneSettings") -> Iterator[str]:
    if settings.ttl_s_max < settings.ttl_s_default:
        yield (
            f"{settings.subject('ttl_s_max')}: max-ttl {format_duration(settings.ttl_s_max)} is below "
            f"default-ttl {format_duration(settings.ttl_s_default)} ({settings.origin('ttl_s_default')})"
        )


def _listener_problems(settings: "PlaneSettings") -> Iterator[str]:
    if settings.listen_proto == "unix":
        if settings.connguard_enabled:
            yield f"{settings.subject('connguard_enabled')}: not possible on a unix socket"
        return
    try:
        parse_host_port(settings.listen)
    except ValueError as error:
        yield f"{settings.subject('listen')}: {error}"


def _node_problems(settings: "PlaneSettings") -> Iterator[str]:
    try:
        host, _ = parse_host_port(settings.tcp_nodes_listen)
    except ValueError as error:
        yield f"{settings.subject('tcp_nodes_listen')}: {error}"
        return
    if host in ("", "0.0.0.0", "::"):
        yield f"{settings.subject('tcp_nodes_listen')}: expected an address that other processes can connect to"
    elif not is_loopback(host) and not settings.has_bundle:
        yield (
            f"{settings.subject('tcp_nodes_listen')}: {settings.tcp_nodes_listen} is open to the network: give a bundle "
            "(--bundle), or listen on a loopback address"
        )


def _tcp_problems(settings: "PlaneSettings") -> Iterator[str]:
    yield from _node_problems(settings)
    has_cert, has_key = settings.tcp_tls_cert is not None, settings.tcp_tls_key is not None
    if has_cert != has_key:
        given, missing = ("tcp_tls_cert", "key") if has_cert else ("tcp_tls_key", "cert")
        yield f"{settings.subject(given)}: needs --tcp-tls-{missing} too"
    if not settings.tcp_listen or has_cert or is_local_listener("tcp", settings.tcp_listen):
        return
    if settings.tcp_auth_token is None and settings.tcp_auth_token_file is None:
        yield (
            f"{settings.subject('tcp_listen')}: {settings.tcp_listen} is open to the network: give a certificate "
            "(--tcp-tls-cert, --tcp-tls-key) or a secret (--tcp-auth-token-file), or listen on a loopback address"
        )


def _cluster_problems(settings: "PlaneSettings") -> Iterator[str]:
    join = [_plain_url(url) for url in settings.join]
    if len(set(join)) != len(join):
        twice = next(endpoint for endpoint in join if join.count(endpoint) > 1)
        yield f"{settings.subject('join')}: {twice} is named twice"
    if join and not settings.self_endpoint:
        yield f"{settings.subject('join')}: needs --self, the URL under which other nodes reach this one"


def start_problems(settings: "PlaneSettings") -> Iterator[str]:
    """What stops a server from starting here and now, given the files that are there."""
    yield from _bundle_problems(settings)
    others = {_plain_url(url) for url in settings.join} - {_plain_url(settings.self_endpoint)}
    if others and not settings.is_mtls_on:
        why = (
            f", but {settings.subject('mtls_disabled')} is set"
            if settings.mtls_disabled
            else " and so a bundle"
        )
        yield f"{settings.subject('join')}: joining {min(others)} needs mutual TLS{why}"
    if settings.self_endpoint and settings.is_mtls_on and not settings.tc_auth_disabled:
        yield from _client_bundle_problems(settings)


def _client_bundle_problems(settings: "PlaneSettings") -> Iterator[str]:
    """Other nodes take calls only with a certificate of their own kind."""
    try:
        found = find_client_bundle(settings.tc_client_bundle, settings.config_dir)
    except InvalidBundle as error:
        yield error.detail
        return
    if found is None or not found.is_file():
        yield (
            f"{settings.subject('self_endpoint')}: needs a TC client bundle: name one with --tc-client-bundle, "
            f"put one into {settings.config_dir}, or set --tc-disable-auth"
        )


def _plain_url(url: str) -> str:
    return url.rstrip("/").lower()


def _is_there(path: Path) -> bool:
    """Whether something has this name, or may have it: only what is certainly absent was not meant to be used."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _bundle_problems(settings: "PlaneSettings") -> Iterator[str]:
    """Without a bundle only this machine is served, in the open, unless a setting asks for more."""
    if settings.has_bundle:
        return
    # A folder is what some engines make of a mount whose source is missing; a link may lead to what was not mounted.
    is_there = _is_there(settings.bundle)
    is_open = settings.is_local or settings.open_without_bundle
    is_needed = not is_open or is_there or settings.origin("bundle") != "default"
    wanted = [
        *(["mutual TLS"] if not settings.mtls_disabled and (is_needed or settings.asks_for("mtls")) else []),
        *(["storage encryption"] if _wants_encryption(settings, is_needed) else []),
    ]
    if wanted:
        yield (
            f"{settings.subject('bundle')}: {settings.bundle} {'is no file' if is_there else 'does not exist'}, "
            f"but is needed for {' and '.join(wanted)}; "
            "name one with --bundle, or set --disable-mtls and --disable-storage-encryption"
        )


def _wants_encryption(settings: "PlaneSettings", is_needed: bool) -> bool:
    if settings.storage_encryption_disabled:
        return False
    return is_needed or settings.storage_encryption_snappy or settings.asks_for("storage-encryption")


def is_local_listener(proto: str, listen: str) -> bool:
    """Whether only this machine can reach the listener."""
    return proto == "unix" or is_loopback(parse_host_port(listen)[0])
