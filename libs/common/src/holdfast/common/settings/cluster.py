"""Settings of transactions, membership, high availability and maintenance."""

from typing import Literal

from holdfast.common.settings.flag import SettingsGroup, setting
from holdfast.common.settings.origin import surroundings
from holdfast.common.settings.value import WHOLE_NUMBER, DurationS, ExpandedPath, Words

_CLUSTER = "transactions and cluster"
_HA = "high availability"
_MAINTENANCE = "maintenance"


class ClusterFields(SettingsGroup):
    """The transaction coordinator, its peers and its resource managers."""

    self_endpoint: str = setting(_CLUSTER, "self", "", "URL under which other nodes reach this one.")
    join: Words = setting(
        _CLUSTER, "join", [], "URLs of nodes to join; may be repeated or have commas.", key="tc-join"
    )
    tc_trust_dir: ExpandedPath = setting(
        _CLUSTER,
        "tc-trust-dir",
        None,
        "Directory of further CAs trusted between coordinators.",
        default_factory=lambda: surroundings.get().config_dir / "tc-trust.d",
        default_text="<config dir>/tc-trust.d",
    )
    tc_auth_disabled: bool = setting(
        _CLUSTER, "tc-disable-auth", False, "Take calls of coordinators without a certificate role."
    )
    tc_default_ca_allowed: bool = setting(
        _CLUSTER, "tc-allow-default-ca", False, "Trust the bundle's own CA for calls of coordinators."
    )
    tc_client_bundle: ExpandedPath | None = setting(
        _CLUSTER,
        "tc-client-bundle",
        None,
        "Client bundle for calls to other nodes.",
        default_text="<config dir>/tc-client*.pem",
    )
    tc_leader_ttl_s: DurationS = setting(
        _CLUSTER,
        "tc-leader-ttl",
        "15s",
        "How long a leader leads without a quorum's word; members are forgotten after three times this.",
        ge=0.3,
        le=600,
    )
    tc_fixed_quorum: int = setting(
        _CLUSTER,
        "tc-fixed-quorum",
        0,
        "Nodes of the cluster: a leader needs more than half of them, however few are seen; 0 counts those seen.",
        ge=0,
        le=500,
    )
    tc_fanout_timeout_s: DurationS = setting(
        _CLUSTER, "tc-fanout-timeout", "5s", "Limit of one call that brings a decision to a node.", gt=0
    )
    tc_fanout_attempts: int = setting(
        _CLUSTER, "tc-fanout-attempts", 4, "Calls per node and decision.", ge=1, le=1000
    )
    tc_fanout_delay_s_base: DurationS = setting(
        _CLUSTER, "tc-fanout-base-delay", "100ms", "Pause after the first failed call.", ge=0
    )
    tc_fanout_delay_s_max: DurationS = setting(
        _CLUSTER, "tc-fanout-max-delay", "2s", "Longest pause between calls.", ge=0
    )
    tc_fanout_delay_multiplier: float = setting(
        _CLUSTER, "tc-fanout-multiplier", 2.0, "Growth of the pause.", ge=1, le=100
    )
    tc_decision_retention_s: DurationS = setting(
        _CLUSTER, "tc-decision-retention", "24h", "How long a decision is kept for late nodes.", ge=0
    )
    txn_replay_interval_s: DurationS = setting(
        _CLUSTER,
        "txn-replay-interval",
        "5s",
        "Longest time between two sweeps of the transactions, which resume what is due; not above sweeper-interval.",
        ge=0,
    )
    queue_decision_cache_ttl_s: DurationS = setting(
        _CLUSTER,
        "queue-decision-cache-ttl",
        "60s",
        "How long an applied queue decision is remembered.",
        ge=0,
        is_ignored=True,
    )
    queue_decision_applies_max: int = setting(
        _CLUSTER,
        "queue-decision-max-apply",
        50,
        "Queue decisions applied per dequeue.",
        ge=0,
        is_ignored=True,
    )
    queue_decision_apply_timeout_s: DurationS = setting(
        _CLUSTER,
        "queue-decision-apply-timeout",
        "2s",
        "Time a dequeue spends on applying decisions.",
        ge=0,
        is_ignored=True,
    )


class HaFields(SettingsGroup):
    """Several servers on one store."""

    ha: Literal["concurrent", "failover", "single", "auto"] = setting(
        _HA, "ha", "concurrent", "Who serves: concurrent, failover, single or auto.", is_ignored=True
    )
    ha_lease_ttl_s: DurationS = setting(
        _HA, "ha-lease-ttl", "10s", "Lease of the active node.", ge=5, is_ignored=True
    )
    ha_single_presence_ttl_s: DurationS = setting(
        _HA,
        "ha-single-presence-ttl",
        "5m",
        "How long the presence record of a single node holds.",
        gt=0,
        is_ignored=True,
    )


class MaintenanceFields(SettingsGroup):
    """Sweeping, retention and the way down."""

    sweeper_interval_s: DurationS = setting(
        _MAINTENANCE,
        "sweeper-interval",
        "5m",
        "Upper bound of txn-replay-interval; nothing else follows it.",
        gt=0,
    )
    idle_sweep_grace_s: DurationS = setting(
        _MAINTENANCE,
        "idle-sweep-grace",
        "5m",
        "Quiet time before the idle sweeper runs.",
        ge=0,
        is_ignored=True,
    )
    idle_sweep_operation_delay_s: DurationS = setting(
        _MAINTENANCE,
        "idle-sweep-op-delay",
        "100ms",
        "Pause between two pages of a retention run, which looks at 250 keys at a time.",
        ge=0,
        le=60,
    )
    idle_sweep_operations_max: int = setting(
        _MAINTENANCE,
        "idle-sweep-max-ops",
        1000,
        "Operations per run of the idle sweeper.",
        ge=0,
        is_ignored=True,
    )
    idle_sweep_runtime_s_max: DurationS = setting(
        _MAINTENANCE,
        "idle-sweep-max-runtime",
        "30s",
        "Longest run of the idle sweeper.",
        ge=0,
        is_ignored=True,
    )
    retention_s: DurationS = setting(
        _MAINTENANCE,
        "retention",
        "0s",
        "Remove documents, with their attachments, whose key was not used for this long; 0 keeps them. "
        "On every store.",
        ge=0,
    )
    retention_keys_s: DurationS = setting(
        _MAINTENANCE,
        "retention-keys",
        "24h",
        "Forget keys without a document that were not used for this long, but not longer than "
        "--retention; 0 leaves it to --retention.",
        ge=0,
    )
    disk_retention_s: DurationS = setting(
        _MAINTENANCE,
        "disk-retention",
        "0s",
        "lockd's name for --retention, on every store here; if both are set, the shorter one holds.",
        ge=0,
    )
    disk_janitor_interval_s: DurationS = setting(
        _MAINTENANCE,
        "disk-janitor-interval",
        "0s",
        "Time between retention runs; 0 is half the shortest retention, between 1m and 1h.",
        ge=0,
    )
    drain_grace_s: DurationS = setting(
        _MAINTENANCE, "drain-grace", "10s", "Wait for held leases when told to stop; 0 does not wait.", ge=0
    )
    shutdown_timeout_s: DurationS = setting(
        _MAINTENANCE,
        "shutdown-timeout",
        "10s",
        "All the time a stop may take, 0 is without limit; draining gets at most 80 % of it.",
        env_extra=("DFLOCKD_SHUTDOWN_TIMEOUT_S",),
        env_extra_pattern=WHOLE_NUMBER,
        ge=0,
    )
    readyz_drain: bool = setting(
        _MAINTENANCE, "readyz-drain", False, "Let /readyz answer 503 while draining."
    )
