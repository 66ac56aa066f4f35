"""What each role of a split plane needs to start, and what it is told when it lacks something."""

import pytest

from holdfast.common.role import Role, check_role
from holdfast.common.settings import PlaneSettings, SettingsError

SECRET = "a secret of some length"
POSTGRES = "postgres://user@localhost/plane"
PEERS = {f"peer_{service}": f"http://{service}:9341" for service in ("leases", "state", "queue", "txn")}


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.ALL])
def test_a_role_with_all_it_needs_may_start(role: Role) -> None:
    check_role(PlaneSettings.isolated(store=POSTGRES, internal_secret=SECRET, **PEERS), role)


def test_the_plane_in_one_process_needs_nothing() -> None:
    check_role(PlaneSettings.isolated(), Role.ALL)


@pytest.mark.parametrize("store", ["disk:///tmp/store", "mem://"])
@pytest.mark.parametrize("role", [role for role in Role if role is not Role.ALL])
def test_a_store_of_one_process_is_refused(role: Role, store: str) -> None:
    settings = PlaneSettings.isolated(store=store, internal_secret=SECRET, **PEERS)

    with pytest.raises(SettingsError, match=r"--store.*belongs to one process.*postgres://"):
        check_role(settings, role)


def test_the_gateway_needs_no_store_at_all() -> None:
    check_role(PlaneSettings.isolated(internal_secret=SECRET, **PEERS), Role.GATEWAY)


def test_every_missing_peer_is_named() -> None:
    settings = PlaneSettings.isolated(internal_secret=SECRET, peer_state="http://state:1")

    with pytest.raises(SettingsError) as caught:
        check_role(settings, Role.GATEWAY)

    assert [line.split()[2] for line in str(caught.value).splitlines()] == [
        "--peer-leases,",
        "--peer-queue,",
        "--peer-txn,",
    ]


@pytest.mark.parametrize("role", [Role.LEASES, Role.STATE, Role.QUEUE, Role.TXN])
def test_services_on_one_store_need_no_peers(role: Role) -> None:
    check_role(PlaneSettings.isolated(store=POSTGRES, internal_secret=SECRET), role)


@pytest.mark.parametrize("role", [Role.LEASES, Role.STATE, Role.QUEUE])
def test_in_a_cluster_the_other_services_need_the_coordinator(role: Role) -> None:
    settings = PlaneSettings.isolated(store=POSTGRES, internal_secret=SECRET, self_endpoint="http://txn:9341")

    with pytest.raises(SettingsError, match=f"{role} needs --peer-txn"):
        check_role(settings, role)


def test_without_a_secret_and_without_a_bundle_it_is_said_what_to_set() -> None:
    settings = PlaneSettings.isolated(store=POSTGRES, **PEERS)

    with pytest.raises(SettingsError, match=r"--internal-secret.*--bundle"):
        check_role(settings, Role.LEASES)


@pytest.mark.parametrize(
    "url",
    ["leases:9341", "ftp://leases", "http://", "http://leases/path", "http://user@leases", "http://a b"],
)
def test_a_peer_that_is_no_base_url_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match=r"--peer-leases.*http://host:port"):
        PlaneSettings.isolated(peer_leases=url)


def test_a_peer_named_twice_is_refused() -> None:
    with pytest.raises(SettingsError, match="twice"):
        PlaneSettings.isolated(peer_leases="http://leases:80,http://leases")


def test_a_short_secret_is_refused() -> None:
    PlaneSettings.isolated(internal_secret="x" * 16)
    with pytest.raises(SettingsError, match="at least 16 characters"):
        PlaneSettings.isolated(internal_secret="x" * 15)
