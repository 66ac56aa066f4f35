"""HTTP in, membership or registry, HTTP out: who belongs to the cluster, and who applies decisions on which store."""

from typing import Final

from holdfast.common.errors import InvalidBody
from holdfast.common.express.message import Answer, Request, json_answer
from holdfast.common.security.principal import Permission
from holdfast.txn.cluster.endpoints import plain_endpoint
from holdfast.txn.cluster.errors import (
    ClusterSyncFailed,
    ClusterUnavailable,
    IdentityMissing,
    InvalidEndpoint,
    InvalidSelfEndpoint,
    MissingBackendHash,
    MissingEndpoint,
    MissingSelfEndpoint,
    RmReplicationFailed,
    RmUnavailable,
    TcClientRequired,
    TcForbidden,
    TcServerRequired,
)
from holdfast.txn.cluster.membership.membership import ANNOUNCE, LEAVE, LEAVE_FANOUT, Membership
from holdfast.txn.cluster.registry.records import Backend
from holdfast.txn.cluster.registry.registry import REPLICATE, RegistryChange, RmRegistry
from holdfast.txn.protocol.access import caller_identity
from holdfast.txn.protocol.cluster_schemas import (
    AnnounceAnswer,
    AnnounceRequest,
    BackendAnswer,
    BackendsAnswer,
    LeaveRequest,
    MembersAnswer,
    RmRequest,
    parsed,
)
from holdfast.txn.protocol.leader_lease import ANY_METHOD, coordinator_router

BACKEND_HASH_CHARS_MAX: Final = 256

_GET_FIRST = ("GET", *(method for method in ANY_METHOD if method != "GET"))
_NO_SERVER = (TcServerRequired, TcForbidden)
_NO_CLIENT = (TcClientRequired, TcForbidden)
_MEMBERS_ONLY = (IdentityMissing, ClusterUnavailable, ClusterSyncFailed, *_NO_SERVER)
_LEAVE_HEADER = {LEAVE_FANOUT: "1: the caller has told the other members itself."}
_REPLICATE_HEADER = {REPLICATE: "1: change it here only."}


class TcRoutes:
    """The endpoints of membership and of the registry, once the store is open."""

    def __init__(self) -> None:
        self._membership: Membership
        self._registry: RmRegistry
        self.router = coordinator_router()
        self._declare_cluster()
        self._declare_registry()

    def open(self, membership: Membership, registry: RmRegistry) -> None:
        self._membership = membership
        self._registry = registry

    def _declare_cluster(self) -> None:
        self.router.add(
            ANNOUNCE,
            self.announce,
            methods=ANY_METHOD,
            request_model=AnnounceRequest,
            is_body_optional=True,
            is_parsed_by_handler=True,
            response_model=AnnounceAnswer,
            errors=(InvalidBody, MissingSelfEndpoint, InvalidSelfEndpoint, *_MEMBERS_ONLY),
            summary="Say that the calling node belongs to the cluster; it is known by its certificate.",
            request_example={"self_endpoint": "https://a:9341"},
            permission=Permission.COORDINATOR_SERVER,
        )
        self.router.add(
            LEAVE,
            self.leave,
            methods=ANY_METHOD,
            request_model=LeaveRequest,
            is_body_optional=True,
            is_parsed_by_handler=True,
            response_model=MembersAnswer,
            errors=(InvalidBody, *_MEMBERS_ONLY),
            summary="Say that the calling node no longer belongs to the cluster.",
            request_headers=_LEAVE_HEADER,
            permission=Permission.COORDINATOR_SERVER,
        )
        self.router.add(
            "/v1/tc/cluster/list",
            self.list_members,
            methods=_GET_FIRST,
            response_model=MembersAnswer,
            errors=(ClusterUnavailable, *_NO_CLIENT),
            summary="The nodes that belong to the cluster and were heard of lately.",
        )

    def _declare_registry(self) -> None:
        for change, handler in (
            (RegistryChange.REGISTER, self.register),
            (RegistryChange.UNREGISTER, self.unregister),
        ):
            self.router.add(
                f"/v1/tc/rm/{change}",
                handler,
                methods=ANY_METHOD,
                request_model=RmRequest,
                is_body_optional=True,
                is_parsed_by_handler=True,
                response_model=BackendAnswer,
                errors=(
                    InvalidBody,
                    MissingBackendHash,
                    MissingEndpoint,
                    InvalidEndpoint,
                    RmReplicationFailed,
                    RmUnavailable,
                    *_NO_SERVER,
                ),
                summary=f"{str(change).capitalize()} who applies decisions on a store, at every member or nowhere.",
                request_example={"backend_hash": "…", "endpoint": "https://a:9341"},
                request_headers=_REPLICATE_HEADER,
                permission=Permission.COORDINATOR_SERVER,
            )
        self.router.add(
            "/v1/tc/rm/list",
            self.list_backends,
            methods=_GET_FIRST,
            response_model=BackendsAnswer,
            errors=(RmUnavailable, *_NO_CLIENT),
            summary="The stores of the cluster, and who applies decisions on them.",
        )

    async def announce(self, request: Request, body: None) -> Answer:
        text = parsed(AnnounceRequest, request.body).self_endpoint or ""
        if not text.strip():
            raise MissingSelfEndpoint("self_endpoint is required")
        try:
            endpoint = plain_endpoint(text)
        except ValueError as error:
            raise InvalidSelfEndpoint(f"self_endpoint {error}") from error
        roster, expires_at_ms = await self._membership.announce(caller_identity(request), endpoint)
        return json_answer(
            {
                "endpoints": roster.endpoints,
                "updated_at_unix": roster.updated_at_ms,
                "expires_at_unix": expires_at_ms,
            }
        )

    async def leave(self, request: Request, body: None) -> Answer:
        identity = caller_identity(request)
        parsed(LeaveRequest, request.body)
        is_fanned_out = request.header(LEAVE_FANOUT.lower().encode()) == "1"
        roster = await self._membership.leave(identity, is_fanned_out=is_fanned_out)
        return json_answer({"endpoints": roster.endpoints, "updated_at_unix": roster.updated_at_ms or None})

    async def list_members(self, request: Request, body: None) -> Answer:
        roster = await self._membership.roster()
        return json_answer({"endpoints": roster.endpoints, "updated_at_unix": roster.updated_at_ms or None})

    async def register(self, request: Request, body: None) -> Answer:
        return await self._change(RegistryChange.REGISTER, request)

    async def unregister(self, request: Request, body: None) -> Answer:
        return await self._change(RegistryChange.UNREGISTER, request)

    async def list_backends(self, request: Request, body: None) -> Answer:
        backends = await self._registry.backends()
        updated_at_ms = max((backend.updated_at_ms for backend in backends), default=0)
        return json_answer(
            {
                "backends": [_members(backend) for backend in backends],
                "updated_at_unix": updated_at_ms or None,
            }
        )

    async def _change(self, change: RegistryChange, request: Request) -> Answer:
        body = parsed(RmRequest, request.body)
        backend_hash = (body.backend_hash or "").strip()
        if not backend_hash:
            raise MissingBackendHash("backend_hash is required")
        if len(backend_hash) > BACKEND_HASH_CHARS_MAX or "\x00" in backend_hash:
            raise InvalidBody(
                f"backend_hash has at most {BACKEND_HASH_CHARS_MAX} characters, none of them NUL"
            )
        if not (body.endpoint or "").strip():
            raise MissingEndpoint("endpoint is required")
        try:
            endpoint = plain_endpoint(body.endpoint or "")
        except ValueError as error:
            raise InvalidEndpoint(f"endpoint {error}") from error
        is_replica = request.header(REPLICATE.lower().encode()) == "1"
        backend = await self._registry.change(change, backend_hash, endpoint, is_replica=is_replica)
        return json_answer(_members(backend))


def _members(backend: Backend) -> dict[str, object]:
    return {
        "backend_hash": backend.backend_hash,
        "endpoints": backend.endpoints,
        "updated_at_unix": backend.updated_at_ms,
    }
