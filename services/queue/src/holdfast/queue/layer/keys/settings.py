"""The settings of a queue over keys: defaults of the process, and what a put on the queue's key says."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pydantic_core import from_json, to_json

from holdfast.common.settings import PlaneSettings
from holdfast.queue.layer.records_pb2 import KeyQueue
from holdfast.state.layer.kv.errors import KvInvalid

MAX_IN_FLIGHT_MAX: Final = 10_000
ACK_TIMEOUT_S_MAX: Final = 7 * 24 * 3600
SETTINGS_BYTES_MAX: Final = 4096


class Reliability(StrEnum):
    """What an answer to a put promises of its message."""

    MAJORITY = "majority"
    """It survives a crash and a power cut."""
    FEW = "few"
    """It will within a second."""
    NONE = "none"
    """Nothing: it is gone with the process."""


@dataclass(frozen=True, slots=True)
class QueueDefaults:
    """What holds for a queue that does not say otherwise."""

    reliability: Reliability = Reliability.MAJORITY
    max_in_flight: int = 16


def defaults_of(settings: PlaneSettings) -> QueueDefaults:
    return QueueDefaults(Reliability(settings.key_queue_reliability), settings.key_queue_max_in_flight)


def is_settings(value: bytes) -> bool:
    """Whether the value of a queue's key is meant as settings."""
    return value.lstrip()[:1] == b"{"


def apply_settings(queue: KeyQueue, value: bytes) -> None:
    """Take over what a JSON object says; what it does not name stays."""
    if len(value) > SETTINGS_BYTES_MAX:
        raise KvInvalid(f"the settings of a queue have at most {SETTINGS_BYTES_MAX} bytes")
    try:
        settings: object = from_json(value)
    except ValueError as error:
        raise KvInvalid(f"the settings of a queue are a JSON object: {error}") from error
    assert isinstance(settings, dict)
    unknown = settings.keys() - {"reliability", "max_in_flight", "ack_timeout_s"}
    if unknown:
        raise KvInvalid(
            f"a queue has no setting {min(unknown)[:64]!r}; it has reliability, max_in_flight and ack_timeout_s"
        )
    if "reliability" in settings:
        queue.reliability = _reliability(settings["reliability"])
    if "max_in_flight" in settings:
        queue.max_in_flight = _number("max_in_flight", settings["max_in_flight"], 1, MAX_IN_FLIGHT_MAX)
    if "ack_timeout_s" in settings:
        queue.ack_timeout_ms = 1000 * _number(
            "ack_timeout_s", settings["ack_timeout_s"], 0, ACK_TIMEOUT_S_MAX
        )


def _reliability(value: object) -> str:
    if value not in tuple(Reliability):
        raise KvInvalid(f"reliability is one of {', '.join(Reliability)}")
    return str(value)


def _number(name: str, value: object, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise KvInvalid(f"{name} is a whole number from {least} to {most}")
    return value


def shown(queue: KeyQueue) -> bytes:
    """The settings as they are read at the queue's `config` key."""
    return to_json(
        {
            "reliability": queue.reliability,
            "max_in_flight": queue.max_in_flight,
            "ack_timeout_s": queue.ack_timeout_ms // 1000,
        }
    )
