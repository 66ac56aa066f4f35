"""HTTP in, service call, HTTP out: get, update, remove, metadata."""

from holdfast.common.errors import InvalidBody
from holdfast.common.express.message import Answer, Header, Request, json_answer
from holdfast.common.express.router import ExpressRouter
from holdfast.common.fields import (
    InvalidFencingToken,
    MissingFencingToken,
    MissingLease,
    fencing_token,
    is_true,
    key_of,
    namespace_of,
)
from holdfast.common.json_text import compact
from holdfast.common.names import InvalidKey, InvalidNamespace, MissingKey
from holdfast.common.settings import PlaneSettings
from holdfast.state.errors import (
    EtagMismatch,
    ExpectedBytesMismatch,
    ExpectedSha256Mismatch,
    InvalidExpectedBytes,
    InvalidExpectedSha256,
    InvalidMetadata,
    InvalidVersion,
    MissingParams,
    VersionConflict,
)
from holdfast.state.fields import (
    ExpectedBody,
    claim_of,
    expectation_of,
    hidden_of,
    member_of,
    spelled_of,
)
from holdfast.state.schemas import MetadataAnswer, MetadataRequest, RemoveAnswer, UpdateAnswer
from holdfast.state.service import StateService
from holdfast.state.staging import Expectation, View
from holdfast.storage.leasing import (
    Claim,
    FencingMismatch,
    LeaseExpired,
    LeaseRequired,
    MissingTxn,
    TxnMismatch,
)
from holdfast.storage.resource import Member

METADATA_BYTES_MAX = 4096

_QUERY = {"key": "The key.", "namespace": "Its namespace."}
_CLAIM = {
    "X-Lease-ID": "The lease, from acquire.",
    "X-Txn-ID": "Its transaction, from acquire.",
    "X-Fencing-Token": "Its fencing token, from acquire.",
}
_IF = {
    "X-If-Version": "Write only if this is the version.",
    "X-If-State-ETag": "Write only if this is the document's ETag.",
}
_HIDDEN = {"X-Lockd-Meta-Query-Hidden": "Hide the key from queries, or show it again."}
_VERSION = {"X-Key-Version": "The version as this caller sees it."}
_BAD_NAMES = (InvalidNamespace, InvalidKey, MissingKey)
_BAD_CLAIM = (MissingLease, MissingTxn, MissingFencingToken, InvalidFencingToken)
_NO_LEASE = (LeaseRequired, LeaseExpired, FencingMismatch, TxnMismatch)
_CAS = (InvalidVersion, VersionConflict, EtagMismatch)


class StateRoutes:
    """The endpoints of state. `service` is set while the store is open."""

    service: StateService

    def __init__(self, settings: PlaneSettings) -> None:
        self._namespace_default = settings.namespace_default
        self._json_bytes_max = settings.json_bytes_max
        self.router = ExpressRouter(tags=("state",))
        self._declare()

    def _declare(self) -> None:
        self.router.add(
            "/v1/get",
            self.get,
            methods=("POST", "GET"),
            errors=(MissingParams, *_BAD_NAMES, *_BAD_CLAIM, *_NO_LEASE),
            summary="The JSON document of a key: what is committed, or what the holder of a lease has staged.",
            query_parameters={**_QUERY, "public": "1: the committed document, without a lease."},
            request_headers=_CLAIM,
            response_headers={**_VERSION, "ETag": "SHA-256 of the document, in hex."},
        )
        self.router.add(
            "/v1/update",
            self.update,
            response_model=UpdateAnswer,
            errors=(
                *(*_BAD_NAMES, *_BAD_CLAIM, *_NO_LEASE, *_CAS, InvalidMetadata),
                *(InvalidExpectedBytes, InvalidExpectedSha256, ExpectedBytesMismatch, ExpectedSha256Mismatch),
            ),
            summary="Stage a JSON document; release publishes it.",
            query_parameters=_QUERY,
            request_headers={
                **_CLAIM,
                **_IF,
                **_HIDDEN,
                "X-Expected-SHA256": "Of the body as sent.",
                "X-Expected-Bytes": "Size of the body as sent.",
            },
            response_headers={**_VERSION, "ETag": "SHA-256 of the compacted document, in hex."},
            body_limit_bytes=self._json_bytes_max,
        )
        self.router.add(
            "/v1/remove",
            self.remove,
            response_model=RemoveAnswer,
            errors=(*_BAD_NAMES, *_BAD_CLAIM, *_NO_LEASE, *_CAS),
            summary="Stage the removal of the document.",
            query_parameters=_QUERY,
            request_headers={**_CLAIM, **_IF},
            response_headers=_VERSION,
        )
        self._metadata = self.router.add(
            "/v1/metadata",
            self.metadata,
            request_model=MetadataRequest,
            response_model=MetadataAnswer,
            errors=(*_BAD_NAMES, *_BAD_CLAIM, *_NO_LEASE, InvalidVersion, VersionConflict, InvalidMetadata),
            summary="Stage a change of the key's attributes.",
            request_example={"query_hidden": True},
            query_parameters=_QUERY,
            request_headers={**_CLAIM, "X-If-Version": _IF["X-If-Version"], **_HIDDEN},
            response_headers=_VERSION,
            body_limit_bytes=METADATA_BYTES_MAX,
            is_parsed_by_handler=True,
        )

    async def get(self, request: Request, body: None) -> Answer:
        spelled = request.query("key") or ""
        if not spelled.strip():
            raise MissingParams("key is required")
        lease_id = request.header(b"x-lease-id")
        if not lease_id and is_true(request.query("public")):
            view = await self.service.get_public(self._member(request, spelled))
            return self._document(view, [])
        token = fencing_token(request)
        member = self._member(request, spelled)
        if not lease_id:
            raise MissingParams("lease_id required (or use public=1)")
        view = await self.service.get_leased(member, Claim(lease_id, token, None))
        return self._document(view, [(b"x-fencing-token", b"%d" % token)])

    async def update(self, request: Request, body: None) -> Answer:
        member = member_of(request, self._namespace_default)
        claim = claim_of(request)
        expectation = expectation_of(request)
        is_hidden = hidden_of(request)
        ExpectedBody.of(request).check(request.body)
        content = await self.service.content_of(member, compact(request.body))
        view = await self.service.update(member, claim, content, expectation, is_hidden)
        answer = {
            "new_version": view.version,
            "new_state_etag": view.etag,
            "bytes": content.size_bytes,
            "metadata": _metadata(view),
        }
        return json_answer(answer, headers=_version_headers(view))

    async def remove(self, request: Request, body: None) -> Answer:
        member = member_of(request, self._namespace_default)
        claim = claim_of(request)
        was_there, version = await self.service.remove(member, claim, expectation_of(request))
        return json_answer(
            {"removed": was_there, "new_version": version or None},
            headers=[(b"x-key-version", b"%d" % version)],
        )

    async def metadata(self, request: Request, body: None) -> Answer:
        spelled = spelled_of(request)
        claim = claim_of(request)
        is_hidden = self._asked_hidden(request)
        expectation = Expectation(version=expectation_of(request).version)
        member = self._member(request, spelled)
        view = await self.service.hide(member, claim, is_hidden, expectation)
        answer = {
            "namespace": member.namespace,
            "key": spelled,
            "version": view.version,
            "metadata": _metadata(view),
        }
        return json_answer(answer, headers=[(b"x-key-version", b"%d" % view.version)])

    def _asked_hidden(self, request: Request) -> bool:
        by_header = hidden_of(request)
        by_body = None
        if request.body:
            try:
                parsed = self._metadata.parse_now(request.body)
            except InvalidBody as error:
                raise InvalidMetadata(error.detail) from error
            assert isinstance(parsed, MetadataRequest)
            by_body = parsed.query_hidden
        asked = by_header if by_header is not None else by_body
        if asked is None:
            raise InvalidMetadata("no metadata fields provided")
        return asked

    def _member(self, request: Request, spelled: str) -> Member:
        return Member(namespace_of(request.query("namespace"), self._namespace_default), key_of(spelled))

    def _document(self, view: View, headers: list[Header]) -> Answer:
        if view.content is None:
            return Answer(204, b"", headers)
        return Answer(
            200,
            view.content.inline,
            [(b"content-type", b"application/json"), *_version_headers(view), *headers],
        )


def _metadata(view: View) -> dict[str, bool]:
    return {"query_hidden": True} if view.is_hidden else {}


def _version_headers(view: View) -> list[Header]:
    return [(b"etag", view.etag.encode()), (b"x-key-version", b"%d" % view.version)]
