"""Settings of the server itself: listeners, limits, leases, security, telemetry."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, SecretStr

from holdfast.common.settings.flag import SettingsGroup, setting
from holdfast.common.settings.origin import surroundings
from holdfast.common.settings.value import (
    DurationS,
    ExpandedPath,
    SizeBytes,
    StoreUrl,
    default_bundle,
    default_store,
    parse_host_port,
)
from holdfast.common.telemetry.setup import parse_endpoint

_SERVER = "server"
_LEASES = "leases"
_SECURITY = "security"
_TELEMETRY = "telemetry"


def _off_is_empty(value: object) -> object:
    return "" if value is False or value == "off" else value  # YAML reads a bare `off` as false.


def _default_log_level() -> str:
    """What dflockd's debug switch says, where nothing else does."""
    debug = surroundings.get().environ.get("DFLOCKD_DEBUG", "")
    return "debug" if debug.lower() in ("1", "yes", "true") else "info"


def _check_listen(text: str) -> str:
    if text:
        parse_host_port(text)
    return text


def _check_endpoint(text: str) -> str:
    if text:
        parse_endpoint(text)
    return text


def _check_namespace(text: str) -> str:
    if text.startswith("."):
        raise ValueError("expected a name that does not start with a dot; those are reserved")
    return text


def _check_redis_url(url: SecretStr | None) -> SecretStr | None:
    if url is not None and not url.get_secret_value().startswith(("redis://", "rediss://", "unix://")):
        raise ValueError("expected a URL such as redis://:password@host:6379/0, rediss://… or unix:///path")
    return url


OptionalListen = Annotated[str, BeforeValidator(_off_is_empty), AfterValidator(_check_listen)]


class ServerFields(SettingsGroup):
    """The listener, the store and the size of what is taken in."""

    listen: str = setting(
        _SERVER,
        "listen",
        "127.0.0.1:9341",
        "Address to serve on, host:port, or a socket path with listen-proto unix.",
        min_length=1,
    )
    listen_proto: Literal["tcp", "tcp4", "tcp6", "unix"] = setting(
        _SERVER, "listen-proto", "tcp", "Kind of listener: tcp, tcp4, tcp6 or unix."
    )
    store: StoreUrl = setting(
        _SERVER,
        "store",
        None,
        "Storage URL: mem://, disk://FOLDER or postgres://user@host/database.",
        default_factory=default_store,
        default_text="disk://~/.local/share/holdfast/store, or below $XDG_DATA_HOME",
    )
    namespace_default: Annotated[str, AfterValidator(_check_namespace)] = setting(
        _SERVER,
        "default-namespace",
        "default",
        "Namespace of requests that name none.",
        short="n",
        pattern=r"^[a-z0-9._-]{1,128}$",
    )
    log_level: Literal["trace", "debug", "info", "warn", "error", "none"] = setting(
        _SERVER,
        "log-level",
        None,
        "Least level of the lines written to stderr.",
        default_factory=_default_log_level,
        default_text="info",
    )
    config: ExpandedPath | None = setting(
        _SERVER, "config", None, "Config file (YAML).", short="c", in_file=False
    )
    config_dir: ExpandedPath = setting(
        _SERVER,
        "config-dir",
        None,
        "Where config.yaml, bundles and trusted roots are looked for.",
        default_factory=lambda: surroundings.get().config_dir,
        default_text="~/.holdfast",
        in_file=False,
    )
    bootstrap: ExpandedPath | None = setting(
        _SERVER,
        "bootstrap",
        None,
        "The config directory, by the name of lockd's flag; nothing is created in it.",
    )
    http2_streams_max: int = setting(
        _SERVER, "http2-max-concurrent-streams", 1024, "Streams per HTTP/2 connection.", ge=0, is_ignored=True
    )
    json_bytes_max: SizeBytes = setting(_SERVER, "json-max", "100MiB", "Largest JSON document taken.", gt=0)
    json_util: Literal["lockd", "jsonv2", "stdlib"] = setting(
        _SERVER, "json-util", "lockd", "JSON implementation.", is_ignored=True
    )
    payload_spool_bytes: SizeBytes = setting(
        _SERVER, "payload-spool-mem", "4MiB", "Larger request bodies go to a temporary file.", is_ignored=True
    )
    state_cache_bytes: SizeBytes = setting(
        _SERVER,
        "state-cache-bytes",
        "64MiB",
        "Memory for published documents on a local store, 0 is none. On PostgreSQL each read asks the database.",
    )
    express: bool = setting(
        _SERVER, "express", True, "Serve hot endpoints by the express lane; off serves all by plain ASGI."
    )


class LeaseFields(SettingsGroup):
    """How long a lease lasts and how long one waits for it."""

    ttl_s_default: DurationS = setting(
        _LEASES, "default-ttl", "30s", "Lease time when the client names none.", gt=0
    )
    ttl_s_max: DurationS = setting(
        _LEASES, "max-ttl", "30m", "Longest lease; a longer request is cut to it.", gt=0
    )
    acquire_block_s: DurationS = setting(
        _LEASES,
        "acquire-block",
        "60s",
        "Wait for a held key when the client sends a negative block_seconds other than -1; -1 is no wait.",
        ge=-1,
    )


class SecurityFields(SettingsGroup):
    """Who may connect, and what is encrypted."""

    mtls_disabled: bool = setting(
        _SECURITY,
        "disable-mtls",
        False,
        "Serve without mutual TLS. Without a bundle, loopback is open by itself.",
    )
    open_without_bundle: bool = setting(
        _SECURITY,
        "open-without-bundle",
        False,
        "Serve every address in the open, not only loopback, as long as no bundle is named or found and no "
        "setting asks for protection; the container image sets it.",
    )
    bundle: ExpandedPath = setting(
        _SECURITY,
        "bundle",
        None,
        "Server bundle: CA certificate, certificate, key, root key of the storage encryption.",
        default_factory=default_bundle,
        default_text="<config dir>/server.pem",
    )
    denylist_path: ExpandedPath | None = setting(
        _SECURITY, "denylist-path", None, "File of refused certificate serials, one per line."
    )
    storage_encryption_disabled: bool = setting(
        _SECURITY,
        "disable-storage-encryption",
        False,
        "Store values unencrypted although the bundle has a root key.",
    )
    storage_encryption_snappy: bool = setting(
        _SECURITY, "storage-encryption-snappy", False, "Compress with snappy before encrypting."
    )
    krypto_pool_disabled: bool = setting(
        _SECURITY, "disable-krypto-pool", False, "Buffer reuse while encrypting.", is_ignored=True
    )
    connguard_enabled: bool | None = setting(
        _SECURITY,
        "connguard-enabled",
        None,
        "Block addresses whose TLS handshakes keep failing.",
        default_text="off",
        is_ignored=True,
    )
    connguard_failures: int = setting(
        _SECURITY,
        "connguard-failure-threshold",
        5,
        "Failures within the window that block an address.",
        ge=2,
        is_ignored=True,
    )
    connguard_window_s: DurationS = setting(
        _SECURITY,
        "connguard-failure-window",
        "30s",
        "Time in which failures are counted.",
        gt=0,
        is_ignored=True,
    )
    connguard_block_s: DurationS = setting(
        _SECURITY,
        "connguard-block-duration",
        "5m",
        "How long an address stays blocked.",
        gt=0,
        is_ignored=True,
    )
    connguard_probe_timeout_s: DurationS = setting(
        _SECURITY,
        "connguard-probe-timeout",
        "250ms",
        "How long a silent plain socket may stay silent.",
        gt=0,
        is_ignored=True,
    )


class TelemetryFields(SettingsGroup):
    """Where numbers and spans go."""

    otlp_endpoint: Annotated[str, AfterValidator(_check_endpoint)] = setting(
        _TELEMETRY,
        "otlp-endpoint",
        "",
        "Send traces and metrics here: host[:port] or grpc, grpcs, http, https URL.",
    )
    otlp_sample_ratio: float = setting(
        _TELEMETRY,
        "otlp-sample-ratio",
        1.0,
        "Share of traces to record, 0 to 1. A request with a traceparent header follows its caller's decision instead.",
        ge=0,
        le=1,
    )
    metrics_listen: OptionalListen = setting(
        _TELEMETRY, "metrics-listen", "", "A second listener with /metrics alone.", default_text="off"
    )
    health_listen: OptionalListen = setting(
        _TELEMETRY,
        "health-listen",
        "",
        "A second listener with /healthz and /readyz alone, without TLS: for probes that have no certificate.",
        default_text="off",
    )
    pprof_listen: OptionalListen = setting(
        _TELEMETRY, "pprof-listen", "", "Profiling listener.", default_text="off", is_ignored=True
    )
    profiling_metrics_enabled: bool = setting(
        _TELEMETRY, "enable-profiling-metrics", False, "Runtime metrics of the profiler.", is_ignored=True
    )


class SharedFields(SettingsGroup):
    """What several processes share besides the store."""

    redis_url: Annotated[SecretStr | None, AfterValidator(_check_redis_url)] = setting(
        _SERVER,
        "redis-url",
        None,
        "Redis for wake-ups between processes that share a PostgreSQL store; without it they have NOTIFY alone.",
    )
