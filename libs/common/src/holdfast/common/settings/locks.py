"""Settings of the TCP listener for locks and signals. The names of dflockd's environment are read where ours are not set."""

import re
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, SecretStr

from holdfast.common.settings.flag import SettingsGroup, is_beyond_int64, setting
from holdfast.common.settings.origin import surroundings
from holdfast.common.settings.server import OptionalListen
from holdfast.common.settings.value import WHOLE_NUMBER, DurationS, ExpandedPath

_LOCKS = "locks and signals over TCP"
TCP_HOST: Final = "127.0.0.1"
TCP_PORT: Final = "6388"


def _default_listen() -> str:
    environ = surroundings.get().environ
    host, port = environ.get("DFLOCKD_HOST") or TCP_HOST, environ.get("DFLOCKD_PORT", "")
    if re.fullmatch(WHOLE_NUMBER, port) is None or is_beyond_int64(port):
        port = TCP_PORT
    port = port.removeprefix("+")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _whole_seconds(value: float) -> float:
    if value != int(value):
        raise ValueError("expected whole seconds")
    return value


WholeSeconds = Annotated[DurationS, AfterValidator(_whole_seconds)]


def _stripped(value: object) -> object:
    return value.strip() if isinstance(value, str) else value


class LockFields(SettingsGroup):
    """The listener for dflockd's clients."""

    tcp_listen: OptionalListen = setting(
        _LOCKS,
        "tcp-listen",
        None,
        "Address for locks and signals over TCP, host:port; empty or `off` is none. One that others reach needs a "
        "certificate or a token.",
        default_factory=_default_listen,
        default_text="127.0.0.1:6388, unless another server has it",
    )
    tcp_lease_ttl_s_default: WholeSeconds = setting(
        _LOCKS,
        "tcp-default-lease-ttl",
        "33s",
        "Lease of a lock when the client names none.",
        env_extra=("DFLOCKD_DEFAULT_LEASE_TTL_S",),
        env_extra_pattern=WHOLE_NUMBER,
        ge=1,
    )
    tcp_sweep_interval_s: DurationS = setting(
        _LOCKS,
        "tcp-lease-sweep-interval",
        "1s",
        "How often leases that are over are looked for.",
        env_extra=("DFLOCKD_LEASE_SWEEP_INTERVAL_S",),
        env_extra_pattern=WHOLE_NUMBER,
        ge=0.01,
    )
    tcp_gc_interval_s: DurationS = setting(
        _LOCKS,
        "tcp-gc-interval",
        "5s",
        "How often idle keys are looked for.",
        env_extra=("DFLOCKD_GC_LOOP_SLEEP",),
        env_extra_pattern=WHOLE_NUMBER,
        ge=0.01,
    )
    tcp_gc_idle_s_max: DurationS = setting(
        _LOCKS,
        "tcp-gc-max-idle",
        "60s",
        "Keys that are neither held nor waited for are forgotten after this, with their number of slots.",
        env_extra=("DFLOCKD_GC_MAX_UNUSED_TIME",),
        env_extra_pattern=WHOLE_NUMBER,
        gt=0,
    )
    tcp_locks_max: int = setting(
        _LOCKS,
        "tcp-max-locks",
        1024,
        "Keys of locks and semaphores together, held or idle.",
        env_extra=("DFLOCKD_MAX_LOCKS",),
        env_extra_pattern=WHOLE_NUMBER,
        gt=0,
    )
    tcp_connections_max: int = setting(
        _LOCKS,
        "tcp-max-connections",
        0,
        "Connections at once; 0 is no limit of its own.",
        env_extra=("DFLOCKD_MAX_CONNECTIONS",),
        env_extra_pattern=WHOLE_NUMBER,
        ge=0,
    )
    tcp_waiters_max: int = setting(
        _LOCKS,
        "tcp-max-waiters",
        0,
        "Waiters of one key; 0 is no limit.",
        env_extra=("DFLOCKD_MAX_WAITERS",),
        env_extra_pattern=WHOLE_NUMBER,
        ge=0,
    )
    tcp_keys_max: int = setting(
        _LOCKS,
        "tcp-max-keys",
        0,
        "Counters, texts and lists together; 0 is no limit.",
        env_extra=("DFLOCKD_MAX_KEYS",),
        env_extra_pattern=WHOLE_NUMBER,
        ge=0,
    )
    tcp_list_items_max: int = setting(
        _LOCKS,
        "tcp-max-list-length",
        0,
        "Items of one list; 0 is no limit.",
        env_extra=("DFLOCKD_MAX_LIST_LENGTH",),
        env_extra_pattern=WHOLE_NUMBER,
        ge=0,
    )
    tcp_read_timeout_s: DurationS = setting(
        _LOCKS,
        "tcp-read-timeout",
        "23s",
        "A client that waits for nothing and sends no line for this long is cut off.",
        env_extra=("DFLOCKD_READ_TIMEOUT_S",),
        env_extra_pattern=WHOLE_NUMBER,
        gt=0,
    )
    tcp_write_timeout_s: DurationS = setting(
        _LOCKS,
        "tcp-write-timeout",
        "5s",
        "A client that takes none of its answers for this long is cut off; 0 is never.",
        env_extra=("DFLOCKD_WRITE_TIMEOUT_S",),
        env_extra_pattern=WHOLE_NUMBER,
        ge=0,
    )
    tcp_auto_release: bool = setting(
        _LOCKS,
        "tcp-auto-release-on-disconnect",
        True,
        "What a client holds is released when its connection ends; off leaves that to the lease.",
        env_extra=("DFLOCKD_AUTO_RELEASE_ON_DISCONNECT",),
        env_extra_pattern="(?i:1|yes|true|0|no|false)",
    )
    tcp_durable: bool = setting(
        _LOCKS,
        "tcp-durable",
        False,
        "Record who holds what in the store before it is told: locks and their tokens outlive the process. Signals, "
        "counters, texts and lists stay in memory.",
    )
    tcp_nodes_listen: str = setting(
        _LOCKS,
        "tcp-nodes-listen",
        "127.0.0.1:0",
        "Address under which other processes on the same PostgreSQL reach this one for locks, host:port; port 0 is a "
        "free one. One that is not on this machine needs a bundle.",
    )
    tcp_node_ttl_s: DurationS = setting(
        _LOCKS,
        "tcp-node-ttl",
        "6s",
        "A process that was not heard of for this long is home of no lock; a new one, unless locks are durable, of "
        "none until then.",
        ge=0.5,
    )
    tcp_tls_cert: ExpandedPath | None = setting(
        _LOCKS,
        "tcp-tls-cert",
        None,
        "Certificate chain (PEM) of the listener; with it, it speaks TLS.",
        env_extra=("DFLOCKD_TLS_CERT",),
    )
    tcp_tls_key: ExpandedPath | None = setting(
        _LOCKS, "tcp-tls-key", None, "Its private key (PEM).", env_extra=("DFLOCKD_TLS_KEY",)
    )
    tcp_auth_token: Annotated[SecretStr | None, BeforeValidator(_stripped)] = setting(
        _LOCKS,
        "tcp-auth-token",
        None,
        "Secret that a client must send first.",
        env_extra=("DFLOCKD_AUTH_TOKEN",),
    )
    tcp_auth_token_file: ExpandedPath | None = setting(
        _LOCKS,
        "tcp-auth-token-file",
        None,
        "File with that secret.",
        env_extra=("DFLOCKD_AUTH_TOKEN_FILE",),
    )
