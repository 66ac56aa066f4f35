"""HTTP in, what there is to say of the node, HTTP out: status, members, and what etcd's tools ask for."""

import asyncio
import os
import resource
from contextlib import suppress
from pathlib import Path
from zlib import crc32

from pydantic_core import to_json

from holdfast.common.express.message import Answer, Request
from holdfast.state.layer.kv.errors import AuthenticationOff
from holdfast.state.layer.kv.operation import UNBOUNDED, RangeRequest
from holdfast.state.layer.kv.port import KeySpace
from holdfast.state.protocol.etcd.declarations import LOOKS, EtcdRouter, answered
from holdfast.state.protocol.etcd.identity import Identity
from holdfast.state.protocol.etcd.listener import SERVER_VERSION
from holdfast.state.protocol.etcd.wire.answer import AnswerWriter
from holdfast.state.protocol.etcd.wire.body import object_of
from holdfast.storage.opening import disk_folder
from holdfast.storage.port import Store


class MaintenanceRoutes:
    """The rest is set while the store is open."""

    service: KeySpace
    answers: AnswerWriter
    identity: Identity
    store: Store

    def __init__(self) -> None:
        declared = EtcdRouter("maintenance")
        declared.add(
            "/maintenance/status",
            self.status,
            summary="Version and state of the node.",
            example={},
            is_repeatable=True,
        )
        declared.add(
            "/maintenance/hash",
            self.hash,
            summary="A checksum of the keys and their revisions.",
            example={},
            admission=LOOKS,
            is_repeatable=True,
        )
        declared.add(
            "/maintenance/alarm",
            self.nothing,
            summary="Alarms: there are none.",
            example={"action": "GET"},
            is_repeatable=True,
        )
        declared.add(
            "/maintenance/defragment",
            self.nothing,
            summary="Nothing to do: the store reclaims its space by itself.",
            example={},
            is_repeatable=True,
        )
        declared.add(
            "/cluster/member/list",
            self.members,
            summary="The node that answers.",
            example={},
            is_repeatable=True,
        )
        declared.add(
            "/auth/authenticate",
            self.authenticate,
            summary="A token for a user, if there were users.",
            example={"name": "root", "password": "secret"},
            errors=(AuthenticationOff,),
            is_repeatable=True,
        )
        self.router = declared.router

    async def status(self, request: Request, body: None) -> Answer:
        object_of(request.body)
        revision = await self.service.revision()
        size = await asyncio.to_thread(_size_bytes, self.store.url)
        figures = {
            "version": SERVER_VERSION,
            "dbSize": str(size),
            "leader": str(self.identity.member_id),
            "raftIndex": str(revision),
            "raftTerm": str(self.identity.raft_term),
            "raftAppliedIndex": str(revision),
            "dbSizeInUse": str(size),
        }
        return answered(b"%b,%b" % (self.answers.begin(revision), to_json(figures)[1:]))

    async def hash(self, request: Request, body: None) -> Answer:
        """Two key spaces with the same keys at the same revisions have the same one; it costs as much as a range of all keys."""
        object_of(request.body)
        result = await self.service.range(RangeRequest(UNBOUNDED, UNBOUNDED, keys_only=True))
        checksum = 0
        for kv in result.kvs:
            checksum = crc32(b"%d,%d,%b;" % (kv.mod_revision, kv.version, kv.key), checksum)
        member = b',"hash":%d' % checksum if checksum else b""
        return answered(b"%b%b}" % (self.answers.begin(result.revision), member))

    async def nothing(self, request: Request, body: None) -> Answer:
        object_of(request.body)
        return answered(b"{}")

    async def members(self, request: Request, body: None) -> Answer:
        object_of(request.body)
        identity = self.identity
        urls = to_json([identity.client_url])
        member = b'{"ID":"%d","name":%b,"peerURLs":%b,"clientURLs":%b}' % (
            identity.member_id,
            to_json(identity.name),
            urls,
            urls,
        )
        return answered(b'%b,"members":[%b]}' % (self.answers.begin(0), member))

    async def authenticate(self, request: Request, body: None) -> Answer:
        object_of(request.body)
        raise AuthenticationOff


def _size_bytes(store_url: str) -> int:
    """Of the files of a store on disk; any other has at least what the process takes to hold it."""
    if not store_url.startswith("disk://"):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    size = 0
    for folder, _, names in os.walk(disk_folder(store_url)):
        for name in names:
            with suppress(OSError):  # The store removes files when it likes.
                size += os.lstat(Path(folder, name)).st_size
    return size
