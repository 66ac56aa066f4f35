"""What can be set about a store, on every backend."""

from dataclasses import dataclass, field
from pathlib import Path

from pydantic import SecretStr

from holdfast.common.clock import Clock, SystemClock
from holdfast.storage.codec.compression import Compression
from holdfast.storage.codec.keyring import Keyring


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Defaults are for production; tests shrink them."""

    clock: Clock = field(default_factory=SystemClock)
    keyring: Keyring | None = None  # With one, values and blobs are encrypted.
    compression: Compression = Compression.NONE  # Before encryption, so only with it.
    bundle_path: Path | None = None  # Where the keyring came from, for messages.
    history_revisions_max: int = 100_000  # A watch may start this far back …
    history_age_s_max: float = 600.0  # … and this long ago, whichever is nearer.
    compact_interval_s: float = 10.0
    watch_buffer_events_max: int = 10_000  # A watcher further behind is cut off.
    blob_free_grace_s: float = 120.0  # After the last record let go of a blob …
    blob_free_interval_s: float = 15.0  # … looked for this often; readers tell other processes as often.
    blob_sweep_grace_s: float = 3600.0  # For blobs that nothing ever referred to.
    blob_sweep_interval_s: float = 600.0
    journal_segment_bytes: int = 64 << 20  # Disk: what preallocated log files grow to.
    # Disk: the reserve; with less free space writes are refused with StoreFull.
    free_bytes_min: int = 64 << 20
    group_batches_max: int = 1024  # Batches that share one sync.
    loop_syncs_after: int | None = 64  # Disk: syncs before the loop may sync a turn itself; None: never.
    # PostgreSQL: beyond it nothing is served; 0: no limit.
    clock_skew_s_max: float = 30.0
    postgres_clock_interval_s: float = 2.0  # How often the database's clock is asked.
    postgres_pool_max: int = 8
    postgres_poll_interval_s: float = 1.0  # Fallback when a NOTIFY is lost.
    postgres_cache_bytes_max: int = 64 << 20  # Records that transactions read without a round trip; 0: none.
    redis_url: SecretStr | None = None  # PostgreSQL: hints to other processes go this way too.
    outcome_timeout_s: float = 30.0  # PostgreSQL: how long an unknown outcome is asked after.
