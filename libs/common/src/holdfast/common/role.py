"""What one process of the plane is: all of it, or one of its services, and what each of these needs to start."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from holdfast.common.settings import PlaneSettings, SettingsError


class Role(StrEnum):
    """The argument of `holdfast serve`; `all` is the plane in one process."""

    ALL = "all"
    GATEWAY = "gateway"
    LEASES = "leases"
    STATE = "state"
    QUEUE = "queue"
    TXN = "txn"


SERVICES: Final = (Role.LEASES, Role.STATE, Role.QUEUE, Role.TXN)

_LOCAL_STORES: Final = ("disk://", "mem://")


def peer_roles(settings: PlaneSettings, role: Role) -> tuple[Role, ...]:
    """The services that a process of this role calls. All on one store commit there by themselves; in a cluster of
    several stores the coordinator is asked."""
    if role is Role.GATEWAY:
        return SERVICES
    is_led = role in (Role.LEASES, Role.STATE, Role.QUEUE) and bool(settings.self_endpoint)
    return (Role.TXN,) if is_led else ()


def peer_urls(settings: PlaneSettings, service: Role) -> list[str]:
    """Where the replicas of a service are."""
    urls: list[str] = getattr(settings, f"peer_{service}")
    return urls


def check_role(settings: PlaneSettings, role: Role) -> None:
    """Raise SettingsError when a process of this role cannot start with these settings."""
    found = [] if role is Role.ALL else list(_problems(settings, role))
    if found:
        raise SettingsError("\n".join(found))


def _problems(settings: PlaneSettings, role: Role) -> Iterator[str]:
    # The gateway opens no store, so one that was not named is not looked at.
    is_store_used = role is not Role.GATEWAY or settings.origin("store") != "default"
    if is_store_used and settings.store.startswith(_LOCAL_STORES):
        kind = settings.store.partition("://")[0]
        yield (
            f"{settings.subject('store')}: a {kind}:// store belongs to one process, so {role} cannot share it with "
            "the other services; use --store postgres://user@host/database, or `holdfast serve` for one process"
        )
    for service in peer_roles(settings, role):
        if not peer_urls(settings, service):
            yield f"{role} needs --peer-{service}, the URLs of {service}, separated by commas"
    if settings.internal_secret is None and not settings.has_bundle:
        yield (
            f"{role} has nothing to sign calls to other services with: set the same --internal-secret (or "
            "HOLDFAST_INTERNAL_SECRET) for all of them, or give each a server bundle of the same CA with --bundle"
        )
