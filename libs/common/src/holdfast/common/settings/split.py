"""Settings of a plane that runs as several processes: where its services are, and the secret they share."""

from typing import Annotated

from pydantic import AfterValidator, SecretStr

from holdfast.common.settings.flag import SettingsGroup, setting
from holdfast.common.settings.value import Words
from holdfast.common.upstream.address import parse_address

_SPLIT = "split into services"
SECRET_CHARS_MIN = 16


def _check_urls(urls: list[str]) -> list[str]:
    found = [parse_address(url).url for url in urls]
    if len(set(found)) != len(found):
        raise ValueError(f"{next(url for url in found if found.count(url) > 1)} is named twice")
    return found


Urls = Annotated[Words, AfterValidator(_check_urls)]


def _check_secret(secret: SecretStr | None) -> SecretStr | None:
    if secret is not None and len(secret.get_secret_value()) < SECRET_CHARS_MIN:
        raise ValueError(f"expected at least {SECRET_CHARS_MIN} characters")
    return secret


def _peers(service: str) -> Urls:
    description = f"URLs of the replicas of {service}; may be repeated or have commas."
    urls: Urls = setting(_SPLIT, f"peer-{service}", [], description)
    return urls


class SplitFields(SettingsGroup):
    """The other processes of this plane."""

    peer_leases: Urls = _peers("leases")
    peer_state: Urls = _peers("state")
    peer_queue: Urls = _peers("queue")
    peer_txn: Urls = _peers("txn")
    internal_secret: Annotated[SecretStr | None, AfterValidator(_check_secret)] = setting(
        _SPLIT,
        "internal-secret",
        None,
        "Signs calls between the processes of a plane; without it they use the root key of their bundle.",
    )
