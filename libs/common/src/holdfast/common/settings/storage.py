"""Settings of the queue, the index and the stores."""

import os

from pydantic import SecretStr

from holdfast.common.settings.flag import SettingsGroup, setting
from holdfast.common.settings.value import DurationS, SizeBytes

_QUEUE = "queue"
_WOKEN = "Superseded: consumers are woken by commits, on every store."
_INDEX = "index and query"
_STORE = "stores"
_DISK = "disk log store"
_OBJECT = "object stores"


def _default_consumers_max() -> int:
    return min(4096, max(128, 64 * (os.cpu_count() or 1)))


class QueueFields(SettingsGroup):
    """Consumers and how they are woken."""

    queue_consumers_max: int = setting(
        _QUEUE,
        "queue-max-consumers",
        None,
        "Consumers waiting at one server.",
        default_factory=_default_consumers_max,
        default_text="64 per core, 128 to 4096",
        ge=1,
        le=1_000_000,
    )
    queue_dequeue_batch_max: int = setting(
        _QUEUE,
        "queue-dequeue-batch-max",
        1,
        "Messages that one dequeue may be answered with, if its page_size asks for them.",
        ge=1,
        le=64,
    )
    queue_poll_interval_s: DurationS = setting(
        _QUEUE, "queue-poll-interval", "3s", f"Poll of the store. {_WOKEN}", gt=0, is_ignored=True
    )
    queue_poll_jitter_s: DurationS = setting(
        _QUEUE,
        "queue-poll-jitter",
        "500ms",
        f"Random addition to the poll interval. {_WOKEN}",
        ge=0,
        is_ignored=True,
    )
    queue_resilient_poll_interval_s: DurationS = setting(
        _QUEUE,
        "queue-resilient-poll-interval",
        "5m",
        f"Safety poll while watches run. {_WOKEN}",
        ge=0,
        is_ignored=True,
    )
    queue_list_page_size: int = setting(
        _QUEUE, "queue-list-page-size", 128, "Messages read at once.", ge=1, le=10_000
    )
    disk_queue_watch: bool = setting(
        _QUEUE, "disk-queue-watch", True, f"Watch disk stores for new messages. {_WOKEN}", is_ignored=True
    )
    mem_queue_watch_disabled: bool = setting(
        _QUEUE,
        "disable-mem-queue-watch",
        False,
        f"Poll memory stores instead of watching them. {_WOKEN}",
        is_ignored=True,
    )


class IndexFields(SettingsGroup):
    """Search."""

    indexer_flush_documents: int = setting(
        _INDEX,
        "indexer-flush-docs",
        1000,
        "Documents per index segment.",
        ge=1,
        le=1_000_000,
        is_ignored=True,
    )
    indexer_flush_interval_s: DurationS = setting(
        _INDEX,
        "indexer-flush-interval",
        "30s",
        "Longest time before a segment is written.",
        gt=0,
        is_ignored=True,
    )
    query_document_prefetch: int = setting(
        _INDEX,
        "query-doc-prefetch",
        8,
        "Documents read ahead while a query streams.",
        ge=1,
        le=1024,
        is_ignored=True,
    )


class StoreFields(SettingsGroup):
    """History and blobs, on every backend."""

    history_revisions_max: int = setting(
        _STORE, "history-revisions", 100_000, "Revisions a watch may start in the past.", ge=0
    )
    history_age_s_max: DurationS = setting(_STORE, "history-age", "10m", "Age of the oldest of them.", ge=0)
    blob_free_grace_s: DurationS = setting(
        _STORE,
        "blob-free-grace",
        "2m",
        "How long a large content stays after it was overwritten or removed; longer only while it is read.",
        ge=60,
    )
    blob_sweep_grace_s: DurationS = setting(
        _STORE, "blob-sweep-grace", "1h", "How long a blob that nothing ever referred to is kept.", ge=0
    )
    clock_skew_s_max: DurationS = setting(
        _STORE,
        "clock-skew-max",
        "30s",
        "PostgreSQL: how far this machine's clock and the database's may differ before nothing is served; 0: any.",
        ge=0,
    )
    postgres_cache_bytes: SizeBytes = setting(
        _STORE,
        "postgres-cache-size",
        "64MiB",
        "PostgreSQL: memory for records that transactions read without a round trip; 0: none.",
        ge=0,
    )
    storage_retry_attempts: int = setting(
        _STORE,
        "storage-retry-attempts",
        6,
        "Tries of one storage call; 0 takes what suits the backend.",
        ge=0,
        le=1000,
        is_ignored=True,
    )
    storage_retry_delay_s_base: DurationS = setting(
        _STORE,
        "storage-retry-base-delay",
        "100ms",
        "Pause after the first failed try.",
        ge=0,
        is_ignored=True,
    )
    storage_retry_delay_s_max: DurationS = setting(
        _STORE, "storage-retry-max-delay", "5s", "Longest pause between tries.", ge=0, is_ignored=True
    )
    storage_retry_multiplier: float = setting(
        _STORE, "storage-retry-multiplier", 2.0, "Growth of the pause.", ge=1, le=100, is_ignored=True
    )


class DiskFields(SettingsGroup):
    """The embedded engine."""

    logstore_commit_operations_max: int = setting(
        _DISK, "logstore-commit-max-ops", 1024, "Batches that share one sync.", ge=1, le=1_000_000
    )
    logstore_segment_bytes: SizeBytes = setting(
        _DISK, "logstore-segment-size", "64MiB", "Size that log files grow to.", ge=1 << 20
    )
    disk_reserve_bytes: SizeBytes = setting(
        _DISK,
        "disk-reserve",
        "64MiB",
        "Free space that is left on the device: with less, writes are refused with 507 and reads go on.",
        ge=0,
    )
    logstore_compaction: bool = setting(
        _DISK, "logstore-compaction", True, "Reclaim space in the background.", is_ignored=True
    )
    logstore_compaction_interval_s: DurationS = setting(
        _DISK, "logstore-compaction-interval", "30m", "Time between compactions.", gt=0, is_ignored=True
    )
    logstore_compaction_segments_min: int = setting(
        _DISK,
        "logstore-compaction-min-segments",
        2,
        "Segments that make a compaction worth while.",
        ge=1,
        is_ignored=True,
    )
    logstore_compaction_reclaim_bytes_min: SizeBytes = setting(
        _DISK,
        "logstore-compaction-min-reclaim-size",
        "64MiB",
        "Reclaimable bytes that make it worth while.",
        is_ignored=True,
    )
    logstore_compaction_delete_grace_s: DurationS = setting(
        _DISK,
        "logstore-compaction-delete-grace",
        "15m",
        "How long replaced segments are kept.",
        ge=0,
        is_ignored=True,
    )
    logstore_compaction_bytes_per_s_max: SizeBytes = setting(
        _DISK,
        "logstore-compaction-max-io-bytes-per-sec",
        "8MiB",
        "Disk bandwidth of compaction, 0 is unlimited.",
        is_ignored=True,
    )
    disk_lock_file_cache_size: int = setting(
        _DISK, "disk-lock-file-cache-size", 2048, "Open lock files.", ge=0, is_ignored=True
    )


class ObjectStoreFields(SettingsGroup):
    """S3, AWS and Azure. Secrets come from the environment; Azure's also by flag, as its tools expect."""

    aws_region: str = setting(
        _OBJECT,
        "aws-region",
        "",
        "Region of aws:// stores.",
        env_extra=("AWS_REGION", "AWS_DEFAULT_REGION"),
        is_ignored=True,
    )
    aws_kms_key_id: str = setting(_OBJECT, "aws-kms-key-id", "", "KMS key of aws:// stores.", is_ignored=True)
    s3_sse: str = setting(
        _OBJECT,
        "s3-sse",
        "",
        "Server-side encryption asked of S3, such as AES256 or aws:kms.",
        is_ignored=True,
    )
    s3_kms_key_id: str = setting(_OBJECT, "s3-kms-key-id", "", "KMS key of s3:// stores.", is_ignored=True)
    s3_part_bytes_max: SizeBytes = setting(
        _OBJECT,
        "s3-max-part-size",
        "16MiB",
        "Part size of multipart uploads.",
        ge=5 << 20,
        le=5 << 30,
        is_ignored=True,
    )
    s3_encrypt_buffer_bytes: SizeBytes = setting(
        _OBJECT, "s3-encrypt-buffer-budget", "64MiB", "Memory for encrypting uploads.", is_ignored=True
    )
    s3_access_key_id: SecretStr | None = setting(
        _OBJECT,
        "s3-access-key-id",
        None,
        "Access key of s3:// stores.",
        env_extra=("HOLDFAST_S3_ROOT_USER", "LOCKD_S3_ROOT_USER"),
        on_command_line=False,
        in_file=False,
        is_ignored=True,
    )
    s3_secret_access_key: SecretStr | None = setting(
        _OBJECT,
        "s3-secret-access-key",
        None,
        "Secret key of s3:// stores.",
        env_extra=("HOLDFAST_S3_ROOT_PASSWORD", "LOCKD_S3_ROOT_PASSWORD"),
        on_command_line=False,
        in_file=False,
        is_ignored=True,
    )
    s3_session_token: SecretStr | None = setting(
        _OBJECT,
        "s3-session-token",
        None,
        "Session token of s3:// stores.",
        on_command_line=False,
        in_file=False,
        is_ignored=True,
    )
    azure_key: SecretStr | None = setting(
        _OBJECT,
        "azure-key",
        None,
        "Account key of azure:// stores.",
        env_extra=("HOLDFAST_AZURE_ACCOUNT_KEY", "LOCKD_AZURE_ACCOUNT_KEY"),
        is_ignored=True,
    )
    azure_endpoint: str = setting(
        _OBJECT, "azure-endpoint", "", "Endpoint of azure:// stores, if not the public one.", is_ignored=True
    )
    azure_sas_token: SecretStr | None = setting(
        _OBJECT, "azure-sas-token", None, "SAS token of azure:// stores.", is_ignored=True
    )
