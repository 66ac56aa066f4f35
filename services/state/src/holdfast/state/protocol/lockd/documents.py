"""HTTP in, service call, HTTP out: get, update, mutate, remove, metadata."""

from collections.abc import AsyncIterator

from holdfast.common.errors import InvalidBody
from holdfast.common.express.execution import validated
from holdfast.common.express.message import (
    Answer,
    AnyAnswer,
    Header,
    Request,
    StreamAnswer,
    json_answer,
    json_with_lines,
    render_lines,
)
from holdfast.common.express.traits import ALL_METHODS
from holdfast.common.fields import fencing_token, is_true, key_of, namespace_of
from holdfast.common.json_text import compact
from holdfast.common.settings import PlaneSettings
from holdfast.leases.layer.grant import Claim
from holdfast.lql.errors import InvalidMutations
from holdfast.state.layer.document.intake import above_limit
from holdfast.state.layer.document.mutation.service import Mutated, MutationService
from holdfast.state.layer.document.service import StateService
from holdfast.state.layer.document.staging import Expectation, View
from holdfast.state.layer.errors import (
    DocumentTooLarge,
    ExpectedBytesMismatch,
    ExpectedSha256Mismatch,
    InvalidExpectedBytes,
    InvalidExpectedSha256,
    InvalidMetadata,
    InvalidVersion,
    MissingParams,
    MutationUnavailable,
    TransactionTooLarge,
    VersionConflict,
)
from holdfast.state.protocol.lockd.declarations import (
    BAD_CLAIM,
    BAD_NAMES,
    CAS,
    CLAIM,
    HIDDEN,
    IF,
    IF_NONE_MATCH,
    NO_LEASE,
    PUBLIC,
    QUERY,
    READS,
    VERSION,
    WRITES,
    state_router,
)
from holdfast.state.protocol.lockd.fields import (
    CHECKED_BY_HANDLER,
    announced_bytes,
    claim_of,
    expectation_of,
    expected_body,
    hidden_of,
    is_named,
    member_of,
    spelled_of,
)
from holdfast.state.protocol.lockd.ready import Ready, ReadyAnswers
from holdfast.state.protocol.lockd.schemas import (
    MetadataAnswer,
    MetadataRequest,
    MutateRequest,
    RemoveAnswer,
    UpdateAnswer,
)
from holdfast.storage.intake import Content
from holdfast.txn.layer.port import Member

METADATA_BYTES_MAX = 4096


class StateRoutes:
    """The endpoints of state. `service` is set while the store is open, `ready` too if answers can be kept over it."""

    service: StateService
    mutations: MutationService
    ready: ReadyAnswers | None = None

    def __init__(self, settings: PlaneSettings) -> None:
        self._namespace_default = settings.namespace_default
        self._json_bytes_max = settings.json_bytes_max
        self.router = state_router("state")
        self._declare()

    def _declare(self) -> None:
        self.router.add(
            "/v1/get",
            self.get,
            methods=("POST", "GET"),
            errors=(MissingParams, *BAD_NAMES, *BAD_CLAIM, *NO_LEASE),
            summary="The JSON document of a key: what is committed, or what the holder of a lease has staged.",
            query_parameters={**QUERY, **PUBLIC},
            request_headers={**CLAIM, **IF_NONE_MATCH},
            response_headers={**VERSION, "ETag": "SHA-256 of the document, in hex."},
            bodiless_responses={
                204: "There is no document.",
                304: "If-None-Match names the document's ETag: the caller has it.",
            },
            admission=READS,
            repeatable=ALL_METHODS,
        )
        self.router.add(
            "/v1/update",
            self.update,
            stream_handler=self.update_stream,
            response_model=UpdateAnswer,
            errors=(
                *(*BAD_NAMES, *BAD_CLAIM, *NO_LEASE, *CAS, InvalidMetadata, TransactionTooLarge),
                *(InvalidExpectedBytes, InvalidExpectedSha256, ExpectedBytesMismatch, ExpectedSha256Mismatch),
            ),
            summary="Stage a JSON document; release publishes it.",
            query_parameters=QUERY,
            request_headers={
                **CLAIM,
                **IF,
                **HIDDEN,
                "X-Expected-SHA256": "Of the body as sent.",
                "X-Expected-Bytes": "Size of the body as sent.",
            },
            response_headers={**VERSION, "ETag": "SHA-256 of the compacted document, in hex."},
            body_limit_bytes=CHECKED_BY_HANDLER,
            admission=WRITES,
        )
        self._mutate = self.router.add(
            "/v1/mutate",
            self.mutate,
            request_model=MutateRequest,
            response_model=UpdateAnswer,
            errors=(
                *(*BAD_NAMES, *BAD_CLAIM, *NO_LEASE, *CAS, InvalidMetadata),
                *(InvalidMutations, DocumentTooLarge, TransactionTooLarge, MutationUnavailable),
            ),
            summary="Change fields of the JSON document, and stage it.",
            request_example={"mutations": ["/count++", "/status=done", "rm:/draft"]},
            query_parameters=QUERY,
            request_headers={**CLAIM, **IF, **HIDDEN},
            response_headers={
                **VERSION,
                "ETag": "SHA-256 of the new document, in hex.",
                "X-Lockd-Mutate-Bytes-Read": "Size of the document before.",
                "X-Lockd-Mutate-Bytes-Written": "Size of the document after.",
            },
            is_parsed_by_handler=True,
            admission=WRITES,
        )
        self.router.add(
            "/v1/remove",
            self.remove,
            response_model=RemoveAnswer,
            errors=(*BAD_NAMES, *BAD_CLAIM, *NO_LEASE, *CAS),
            summary="Stage the removal of the document.",
            query_parameters=QUERY,
            request_headers={**CLAIM, **IF},
            response_headers=VERSION,
            admission=WRITES,
        )
        self._metadata = self.router.add(
            "/v1/metadata",
            self.metadata,
            request_model=MetadataRequest,
            response_model=MetadataAnswer,
            errors=(*BAD_NAMES, *BAD_CLAIM, *NO_LEASE, InvalidVersion, VersionConflict, InvalidMetadata),
            summary="Stage a change of the key's attributes.",
            request_example={"query_hidden": True},
            query_parameters=QUERY,
            request_headers={**CLAIM, "X-If-Version": IF["X-If-Version"], **HIDDEN},
            response_headers=VERSION,
            body_limit_bytes=METADATA_BYTES_MAX,
            body_limit_error=InvalidMetadata,
            is_parsed_by_handler=True,
            admission=WRITES,
        )

    async def get(self, request: Request, body: None) -> AnyAnswer:
        ready = self.ready
        if ready is not None and (answer := ready.find(request)) is not None:
            return answer
        spelled = request.query("key") or ""
        if not spelled.strip():
            raise MissingParams("key is required")
        lease_id = request.header(b"x-lease-id")
        if not lease_id and is_true(request.query("public")):
            member = self._member(request, spelled)
            return await self._published(request, member)
        token = fencing_token(request)
        member = self._member(request, spelled)
        if not lease_id:
            raise MissingParams("lease_id required (or use public=1)")
        view = await self.service.get_leased(member, Claim(lease_id, token, None))
        return self._document(request, member, view, [(b"x-fencing-token", b"%d" % token)])

    async def _published(self, request: Request, member: Member) -> AnyAnswer:
        """What is committed; what is read again is kept for the next reader."""
        ready = self.ready
        if ready is None or not ready.wants(request):
            return self._document(request, member, await self.service.get_public(member), [])

        def keep(view: View) -> tuple[View, Ready | None]:
            return view, ready.keep(request, member, view, _version_headers(view))

        view, kept = await self.service.see_public(member, keep)
        return self._document(request, member, view, []) if kept is None else kept.to(request)

    async def update(self, request: Request, body: None) -> Answer:
        member, claim, expectation, is_hidden = self._write(request)
        expected_body(request).check(request.body)
        if len(request.body) > self._json_bytes_max:
            raise above_limit(self._json_bytes_max)
        content = await self.service.content_of(member, compact(request.body))
        view = await self.service.update(member, claim, content, expectation, is_hidden)
        return _updated(view, content)

    async def update_stream(self, request: Request, pieces: AsyncIterator[bytes]) -> Answer:
        member, claim, expectation, is_hidden = self._write(request)
        expected = expected_body(request)
        if announced_bytes(request) > self._json_bytes_max:
            raise above_limit(self._json_bytes_max)
        content = await self.service.take_document(member, pieces, expected, self._json_bytes_max)
        view = await self.service.update(member, claim, content, expectation, is_hidden)
        return _updated(view, content)

    async def mutate(self, request: Request, body: None) -> Answer:
        member, claim, expectation, is_hidden = self._write(request)
        parsed = validated(self._mutate, request.body)
        assert isinstance(parsed, MutateRequest)
        if parsed.namespace and not (request.query("namespace") or "").strip():
            member = member._replace(namespace=namespace_of(parsed.namespace, self._namespace_default))
        expressions = [text for text in parsed.mutations or () if text.strip()]
        if not expressions:
            raise InvalidBody("mutations: at least one expression is required")
        mutations = await self.mutations.parse(expressions)
        mutated = await self.mutations.mutate(member, claim, mutations, expectation, is_hidden)
        return _updated(mutated.view, mutated.content, _counters(mutated))

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
                parsed = validated(self._metadata, request.body)
            except InvalidBody as error:
                raise InvalidMetadata(error.detail) from error
            assert isinstance(parsed, MetadataRequest)
            by_body = parsed.query_hidden
        asked = by_header if by_header is not None else by_body
        if asked is None:
            raise InvalidMetadata("no metadata fields provided")
        return asked

    def _write(self, request: Request) -> tuple[Member, Claim, Expectation, bool | None]:
        """What update and mutate read before their body, in the order clients rely on."""
        member = member_of(request, self._namespace_default)
        return member, claim_of(request), expectation_of(request), hidden_of(request)

    def _member(self, request: Request, spelled: str) -> Member:
        return Member(namespace_of(request.query("namespace"), self._namespace_default), key_of(spelled))

    def _document(self, request: Request, member: Member, view: View, headers: list[Header]) -> AnyAnswer:
        if view.content is None:
            return Answer(204, b"", headers)
        headers = [*_version_headers(view), *headers]
        if is_named(view.etag, request.header(b"if-none-match")):
            return Answer(304, b"", headers)
        headers = [(b"content-type", b"application/json"), *headers]
        if not view.content.HasField("blob"):
            return Answer(200, view.content.inline, headers)
        chunks = self.service.open_content(member, view.content)
        return StreamAnswer(200, headers, view.content.size_bytes, chunks)


def _updated(view: View, content: Content, headers: tuple[Header, ...] = ()) -> Answer:
    """The ETag is that of what was just staged: hex digits."""
    answer: dict[str, object] = {
        "new_version": view.version,
        "new_state_etag": view.etag,
        "bytes": content.size_bytes,
        "metadata": _metadata(view),
    }
    return json_with_lines(answer, render_lines([*_version_headers(view), *headers]))


def _counters(mutated: Mutated) -> tuple[Header, ...]:
    """For information only: one document is looked at and written; a large one goes through a blob."""
    written_bytes = mutated.content.size_bytes
    is_spilled = mutated.content.blob is not None
    counters = {
        b"candidates-seen": 1,
        b"candidates-written": 1,
        b"bytes-read": mutated.read_bytes,
        b"bytes-written": written_bytes,
        b"bytes-captured": written_bytes,
        b"spill-count": int(is_spilled),
        b"spill-bytes": written_bytes if is_spilled else 0,
    }
    return tuple((b"x-lockd-mutate-" + name, b"%d" % count) for name, count in counters.items())


def _metadata(view: View) -> dict[str, bool]:
    return {"query_hidden": True} if view.is_hidden else {}


def _version_headers(view: View) -> list[Header]:
    return [(b"etag", view.etag.encode()), (b"x-key-version", b"%d" % view.version)]
