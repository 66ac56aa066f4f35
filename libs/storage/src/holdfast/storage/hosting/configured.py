"""From the settings of a process to the options of its store."""

from holdfast.common.security.bundle import InvalidBundle, read_bundle
from holdfast.common.settings import PlaneSettings
from holdfast.storage.codec.compression import Compression
from holdfast.storage.codec.keyring import Keyring
from holdfast.storage.options import StoreOptions


def store_options(settings: PlaneSettings) -> StoreOptions:
    """Raises InvalidBundle if the root key that the settings ask for can't be read."""
    keyring = _keyring(settings)
    return StoreOptions(
        keyring=keyring,
        compression=Compression.SNAPPY if settings.storage_encryption_snappy else Compression.NONE,
        bundle_path=None if keyring is None else settings.bundle,
        history_revisions_max=settings.history_revisions_max,
        history_age_s_max=settings.history_age_s_max,
        blob_free_grace_s=settings.blob_free_grace_s,
        clock_skew_s_max=settings.clock_skew_s_max,
        blob_sweep_grace_s=settings.blob_sweep_grace_s,
        journal_segment_bytes=settings.logstore_segment_bytes,
        free_bytes_min=settings.disk_reserve_bytes,
        group_batches_max=settings.logstore_commit_operations_max,
        postgres_cache_bytes_max=settings.postgres_cache_bytes,
        redis_url=settings.redis_url,
    )


def _keyring(settings: PlaneSettings) -> Keyring | None:
    if settings.is_storage_encryption_on:
        return Keyring.from_bundle(read_bundle(settings.bundle))
    is_wanted = settings.origin("bundle") != "default" or settings.asks_for("storage-encryption")
    if is_wanted and not settings.storage_encryption_disabled:
        raise InvalidBundle(
            settings.bundle, "does not exist; name another one, or set --disable-storage-encryption"
        )
    return None
