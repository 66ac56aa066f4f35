"""HTTP in, service call, HTTP out: attachments."""

from collections.abc import AsyncIterator
from time import perf_counter

from holdfast.common.express.message import Answer, AnyAnswer, Header, Request, StreamAnswer, json_answer
from holdfast.common.fields import MissingLease, fencing_token, is_true, key_of, namespace_of
from holdfast.common.settings import PlaneSettings
from holdfast.leases.layer.errors import MissingTxn
from holdfast.leases.layer.grant import Claim
from holdfast.state.layer.attachment.rules import Selector
from holdfast.state.layer.attachment.service import AttachmentService
from holdfast.state.layer.errors import (
    AttachmentNotFound,
    AttachmentTooLarge,
    InvalidAttachment,
    InvalidMaxBytes,
    MissingAttachment,
    TooManyAttachments,
    TransactionTooLarge,
)
from holdfast.state.metrics import AttachmentMetrics
from holdfast.state.protocol.lockd.attachment_fields import (
    download_headers,
    info,
    name_of,
    selector_of,
    texts_of,
    upload_of,
)
from holdfast.state.protocol.lockd.declarations import (
    BAD_CLAIM,
    BAD_NAMES,
    CLAIM,
    NO_LEASE,
    PUBLIC,
    QUERY,
    READS,
    TOKEN,
    VERSION,
    state_router,
)
from holdfast.state.protocol.lockd.fields import CHECKED_BY_HANDLER, claim_of, member_of, spelled_of
from holdfast.state.protocol.lockd.schemas import (
    AttachmentDeleted,
    AttachmentList,
    AttachmentsDeleted,
    AttachmentStaged,
)
from holdfast.storage.intake import pieces_of
from holdfast.txn.layer.port import Member

_SELECTOR = {"name": "Its name.", "id": "Its id; with a name, both have to match."}
_READ_ERRORS = (*BAD_NAMES, *BAD_CLAIM, *NO_LEASE)
_STAGE_ERRORS = (*_READ_ERRORS, TransactionTooLarge)


class AttachmentRoutes:
    """The endpoints of attachments. `service` is set while the store is open."""

    service: AttachmentService

    def __init__(self, settings: PlaneSettings, metrics: AttachmentMetrics) -> None:
        self._namespace_default = settings.namespace_default
        self._metrics = metrics
        self.router = state_router("attachments", admission=READS)
        self._declare_all()
        self._declare_one()

    def _declare_all(self) -> None:
        self.router.add(
            "/v1/attachments",
            self.put,
            stream_handler=self.put_stream,
            body_limit_bytes=CHECKED_BY_HANDLER,
            response_model=AttachmentStaged,
            errors=(
                *(*_STAGE_ERRORS, MissingAttachment, InvalidAttachment, InvalidMaxBytes),
                *(TooManyAttachments, AttachmentTooLarge),
            ),
            summary="Stage an attachment; release publishes it. The body is its content, of any size.",
            query_parameters={
                **QUERY,
                "name": "Its name, unique within the key.",
                "content_type": "Its content type; wins over the header.",
                "max_bytes": "Refuse a larger body; 0 is no limit, the default is 1 TiB.",
                "prevent_overwrite": "1: keep an attachment that has this name already.",
            },
            request_headers={**CLAIM, "Content-Type": "Its content type."},
            response_headers={**VERSION, **TOKEN, "X-Attachment-ID": "Its id, kept when it is overwritten."},
        )
        self.router.add(
            "/v1/attachments",
            self.list,
            methods=("GET",),
            response_model=AttachmentList,
            errors=_READ_ERRORS,
            summary="The attachments of a key, by name.",
            query_parameters={**QUERY, **PUBLIC},
            request_headers=CLAIM,
        )
        self.router.add(
            "/v1/attachments",
            self.delete_all,
            methods=("DELETE",),
            response_model=AttachmentsDeleted,
            errors=_STAGE_ERRORS,
            summary="Stage the deletion of all attachments of a key.",
            query_parameters=QUERY,
            request_headers=CLAIM,
            response_headers={**VERSION, **TOKEN},
        )

    def _declare_one(self) -> None:
        self.router.add(
            "/v1/attachment",
            self.get,
            methods=("GET",),
            errors=(*_READ_ERRORS, MissingAttachment, InvalidAttachment, AttachmentNotFound),
            summary="The content of an attachment.",
            query_parameters={**QUERY, **_SELECTOR, **PUBLIC},
            request_headers=CLAIM,
            response_headers={
                "X-Attachment-ID": "Its id.",
                "X-Attachment-Name": "Its name, in UTF-8.",
                "X-Attachment-Size": "Its size in bytes, if it is not empty.",
                "X-Attachment-SHA256": "Of its content, in hex.",
                "X-Attachment-Created-At": "In Unix seconds.",
                "X-Attachment-Updated-At": "In Unix seconds.",
            },
        )
        self.router.add(
            "/v1/attachment",
            self.delete,
            methods=("DELETE",),
            response_model=AttachmentDeleted,
            errors=(*_STAGE_ERRORS, MissingAttachment, InvalidAttachment),
            summary="Stage the deletion of an attachment.",
            query_parameters={**QUERY, **_SELECTOR},
            request_headers=CLAIM,
            response_headers={**VERSION, **TOKEN},
        )

    async def put(self, request: Request, body: None) -> Answer:
        return await self.put_stream(request, pieces_of(request.body))

    async def put_stream(self, request: Request, pieces: AsyncIterator[bytes]) -> Answer:
        spelled_of(request)
        texts = texts_of(request)
        name = name_of(texts)
        if not name:
            raise MissingAttachment("attachment name required")
        member = member_of(request, self._namespace_default)
        claim = claim_of(request)
        upload = upload_of(request, texts, name)
        request.operation = self._metrics.attach, member.namespace, perf_counter()
        attached = await self.service.put(member, claim, upload, pieces)
        self._metrics.attached_bytes.inc(0 if attached.is_noop else attached.named.attachment.size_bytes)
        answer = {
            "attachment": info(attached.named),
            "noop": attached.is_noop or None,
            "version": attached.version,
        }
        headers = [(b"x-attachment-id", attached.named.attachment.id.encode()), *_version(attached.version)]
        if not attached.is_noop:
            headers.append(_token(claim))
        return json_answer(answer, headers=headers)

    async def list(self, request: Request, body: None) -> Answer:
        spelled = spelled_of(request)
        member, claim, _ = self._reader(request, needs_selector=False)
        request.operation = self._metrics.list, member.namespace, perf_counter()
        seen = await self.service.list(member, claim)
        self._metrics.listed_items.inc(len(seen))
        return json_answer(
            {"namespace": member.namespace, "key": spelled, "attachments": [info(named) for named in seen]}
        )

    async def get(self, request: Request, body: None) -> AnyAnswer:
        spelled_of(request)
        member, claim, selector = self._reader(request, needs_selector=True)
        request.operation = self._metrics.retrieve, member.namespace, perf_counter()
        download = await self.service.get(member, claim, selector)
        headers = download_headers(download.named)
        attachment = download.named.attachment
        self._metrics.retrieved_bytes.inc(attachment.size_bytes)
        if not attachment.HasField("blob"):
            return Answer(200, download.inline, headers)
        chunks = self.service.open_content(member, attachment)
        return StreamAnswer(200, headers, attachment.size_bytes, chunks)

    async def delete(self, request: Request, body: None) -> Answer:
        spelled_of(request)
        selector = selector_of(texts_of(request))
        member = member_of(request, self._namespace_default)
        claim = claim_of(request)
        request.operation = self._metrics.delete, member.namespace, perf_counter()
        was_there, version = await self.service.delete(member, claim, selector)
        return json_answer(
            {"deleted": was_there, "version": version}, headers=[*_version(version), _token(claim)]
        )

    async def delete_all(self, request: Request, body: None) -> Answer:
        member = member_of(request, self._namespace_default)
        claim = claim_of(request)
        request.operation = self._metrics.delete_all, member.namespace, perf_counter()
        count, version = await self.service.delete_all(member, claim)
        self._metrics.deleted_items.inc(count)
        return json_answer(
            {"deleted": count, "version": version}, headers=[*_version(version), _token(claim)]
        )

    def _reader(self, request: Request, *, needs_selector: bool) -> tuple[Member, Claim | None, Selector]:
        """Key, lease (None: a public read) and selector, refused in the order clients rely on."""
        is_public = is_true(request.query("public"))
        token = 0 if is_public else fencing_token(request)
        namespace = namespace_of(request.query("namespace"), self._namespace_default)
        member = Member(namespace, key_of(request.query("key")))
        txn_id = request.header(b"x-txn-id")
        if not is_public and not txn_id:
            raise MissingTxn("X-Txn-ID required")
        selector = selector_of(texts_of(request)) if needs_selector else Selector("", "")
        if is_public:
            return member, None, selector
        lease_id = request.header(b"x-lease-id")
        if not lease_id:
            raise MissingLease("X-Lease-ID required (or use public=1)")
        return member, Claim(lease_id, token, txn_id), selector


def _version(version: int) -> list[Header]:
    return [(b"x-key-version", b"%d" % version)] if version else []


def _token(claim: Claim) -> Header:
    return b"x-fencing-token", b"%d" % claim.fencing_token
