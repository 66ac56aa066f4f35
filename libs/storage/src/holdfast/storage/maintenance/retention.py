"""How long unused keys are kept, as the settings say. 0 is for ever."""

from typing import Final, NamedTuple

from holdfast.common.settings import PlaneSettings
from holdfast.storage.maintenance.janitor import JanitorPace

INTERVAL_S_MIN: Final = 60.0
INTERVAL_S_MAX: Final = 3600.0


class Retention(NamedTuple):
    """`key_s` is for keys without a document, `document_s` for those with one."""

    key_s: float
    document_s: float
    pace: JanitorPace


def retention_of(settings: PlaneSettings) -> Retention:
    document_s = _shorter(settings.retention_s, settings.disk_retention_s)
    # A key without a document is not kept longer than one with a document.
    key_s = _shorter(settings.retention_keys_s, document_s)
    derived_s = min(INTERVAL_S_MAX, max(INTERVAL_S_MIN, _shorter(key_s, document_s) / 2))
    return Retention(
        key_s=key_s,
        document_s=document_s,
        pace=JanitorPace(
            interval_s=settings.disk_janitor_interval_s or derived_s,
            pause_s=settings.idle_sweep_operation_delay_s,
        ),
    )


def _shorter(one_s: float, other_s: float) -> float:
    """Of two times of which 0 is for ever."""
    return min(one_s or other_s, other_s or one_s)
