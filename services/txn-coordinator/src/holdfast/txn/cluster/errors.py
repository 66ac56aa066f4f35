"""What the election, the membership and the registry of resource managers refuse."""

from holdfast.common.errors import HoldfastError
from holdfast.txn.layer.errors import LeaderRefusal


class TcUnavailable(HoldfastError):
    """No coordinator leads now, or this node has no peers."""

    code, status = "tc_unavailable", 503


class TcNotLeader(LeaderRefusal):
    """This node does not lead, and the leader was not reached."""

    code, status = "tc_not_leader", 409


class TcLeaseActive(LeaderRefusal):
    """The leader's lease is held by another node, or under another term."""

    code, status = "tc_lease_active", 409


class MissingCandidateId(HoldfastError):
    """A candidate for the lead without a name."""

    code, status = "missing_candidate_id", 400


class MissingCandidateEndpoint(HoldfastError):
    """A candidate for the lead without a URL."""

    code, status = "missing_candidate_endpoint", 400


class MissingLeaderId(HoldfastError):
    """A renewal or a release that does not say whose lease it is."""

    code, status = "missing_leader_id", 400


class InvalidTerm(HoldfastError):
    """Terms are whole numbers from 1 on."""

    code, status = "invalid_term", 400


class InvalidTtl(HoldfastError):
    """A lease that would end before it begins, or last longer than any."""

    code, status = "invalid_ttl", 400


class MissingSelfEndpoint(HoldfastError):
    """A member that does not say under which URL it is reached."""

    code, status = "missing_self_endpoint", 400


class InvalidSelfEndpoint(HoldfastError):
    """The URL of a member is no plain http or https address."""

    code, status = "invalid_self_endpoint", 400


class IdentityMissing(HoldfastError):
    """The caller's certificate names no server; members are known by nothing else."""

    code, status = "tc_cluster_identity_missing", 403


class ClusterUnavailable(HoldfastError):
    """The membership could not be read or written, or not every member could be told."""

    code, status = "tc_cluster_unavailable", 503


class ClusterSyncFailed(HoldfastError):
    """The membership was stored, but the election could not take it over."""

    code, status = "tc_cluster_sync_failed", 500


class MissingBackendHash(HoldfastError):
    """A resource manager without the name of its store."""

    code, status = "missing_backend_hash", 400


class MissingEndpoint(HoldfastError):
    """A resource manager without a URL."""

    code, status = "missing_endpoint", 400


class InvalidEndpoint(HoldfastError):
    """The URL of a resource manager is no plain http or https address."""

    code, status = "invalid_endpoint", 400


class RmReplicationFailed(HoldfastError):
    """Not every member could be told of a resource manager; nothing was changed here."""

    code, status = "tc_rm_replication_failed", 502


class RmUnavailable(HoldfastError):
    """The registry of resource managers could not be read or written."""

    code, status = "tc_rm_unavailable", 503


class TcClientRequired(HoldfastError):
    """This endpoint is for callers with a client certificate; none was seen."""

    code, status = "tc_client_required", 403


class TcServerRequired(HoldfastError):
    """This endpoint is for servers of the cluster; no certificate was seen."""

    code, status = "tc_server_required", 403


class TcForbidden(HoldfastError):
    """The certificate was not issued by a CA that coordinators trust, or not for this use."""

    code, status = "tc_forbidden", 403
