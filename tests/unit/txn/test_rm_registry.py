"""The registry of resource managers: changed at every member or nowhere, and undone where it was half done."""

from collections.abc import AsyncIterator, Mapping

import pytest

from holdfast.storage.memory import open_memory
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Store
from holdfast.txn.cluster.errors import RmReplicationFailed, RmUnavailable
from holdfast.txn.cluster.peers.port import PeerAnswer, PeerUnreachable, Role
from holdfast.txn.cluster.registry.records import ENDPOINTS_MAX, RmTable
from holdfast.txn.cluster.registry.registry import REPLICATE, RegistryChange, RmRegistry

B, C = "https://b", "https://c"


class FakeMembers:
    """Two other members, of which some refuse some paths."""

    def __init__(self) -> None:
        self.refusing: set[tuple[str, str]] = set()
        self.changes: list[tuple[str, str]] = []

    async def call(
        self,
        endpoint: str,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        timeout_s: float,
        role: Role = Role.CLIENT,
        headers: Mapping[str, str] | None = None,
    ) -> PeerAnswer:
        if (endpoint, path) in self.refusing:
            raise PeerUnreachable("connection refused")
        if body is not None:
            assert (role, headers) == (Role.SERVER, {REPLICATE: "1"})
            self.changes.append((endpoint, path.rpartition("/")[2]))
        return PeerAnswer(200, {})


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with open_memory(StoreOptions()) as opened:
        yield opened


@pytest.fixture
def members() -> FakeMembers:
    return FakeMembers()


@pytest.fixture
def registry(store: Store, members: FakeMembers) -> RmRegistry:
    return RmRegistry(RmTable(store), members, lambda: [B, C], lambda: 7)


async def register(registry: RmRegistry, url: str = "https://n", *, is_replica: bool = False) -> None:
    await registry.change(RegistryChange.REGISTER, "one", url, is_replica=is_replica)


async def test_a_registration_reaches_every_member(registry: RmRegistry, members: FakeMembers) -> None:
    await register(registry)

    assert await registry.endpoints("one") == ("https://n",)
    assert members.changes == [(B, "register"), (C, "register")]


async def test_a_replica_tells_no_one(registry: RmRegistry, members: FakeMembers) -> None:
    await register(registry, is_replica=True)

    assert await registry.endpoints("one") == ("https://n",)
    assert members.changes == []


async def test_nothing_is_changed_when_a_member_is_away(registry: RmRegistry, members: FakeMembers) -> None:
    members.refusing.add((C, "/v1/tc/leader"))

    with pytest.raises(RmReplicationFailed, match="https://c"):
        await register(registry)

    assert await registry.endpoints("one") == ()
    assert members.changes == []


async def test_a_member_that_fails_in_the_middle_has_it_undone_everywhere(
    registry: RmRegistry, members: FakeMembers
) -> None:
    members.refusing.add((C, "/v1/tc/rm/register"))

    with pytest.raises(RmReplicationFailed, match="undone"):
        await register(registry)

    assert await registry.endpoints("one") == ()
    assert members.changes == [(B, "register"), (B, "unregister")]


async def test_a_repetition_that_fails_takes_nothing_away(registry: RmRegistry, members: FakeMembers) -> None:
    await register(registry)
    members.refusing.add((C, "/v1/tc/rm/register"))

    with pytest.raises(RmReplicationFailed):
        await register(registry)

    assert await registry.endpoints("one") == ("https://n",)
    assert (B, "unregister") not in members.changes


async def test_an_undone_removal_is_registered_again(registry: RmRegistry, members: FakeMembers) -> None:
    await register(registry)
    members.refusing.add((C, "/v1/tc/rm/unregister"))

    with pytest.raises(RmReplicationFailed):
        await registry.change(RegistryChange.UNREGISTER, "one", "https://n", is_replica=False)

    assert await registry.endpoints("one") == ("https://n",)


async def test_a_store_has_a_limit_of_endpoints(registry: RmRegistry) -> None:
    for number in range(ENDPOINTS_MAX):
        await register(registry, f"https://n-{number:03}", is_replica=True)

    with pytest.raises(RmUnavailable):
        await register(registry, "https://one-more", is_replica=True)
    assert len(await registry.endpoints("one")) == ENDPOINTS_MAX
