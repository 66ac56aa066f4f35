"""What the attachment endpoints read from headers and query, each with the refusal it may lead to."""

from typing import Final
from urllib.parse import parse_qsl

from holdfast.common.errors import InvalidRequest
from holdfast.common.express.message import QUERY_FIELDS_MAX, Header, Request
from holdfast.common.fields import is_true, parse_int64
from holdfast.state.layer.attachment.records import Named
from holdfast.state.layer.attachment.rules import Selector, Upload
from holdfast.state.layer.errors import InvalidAttachment, InvalidMaxBytes, MissingAttachment

NAME_BYTES_MAX: Final = 1024
CONTENT_TYPE_BYTES_MAX: Final = 255
UPLOAD_BYTES_DEFAULT: Final = 1 << 40
_CONTENT_TYPE_DEFAULT: Final = "application/octet-stream"
_CONTROLS: Final = dict.fromkeys((*range(32), 127), " ")


def texts_of(request: Request) -> dict[str, str]:
    """The query with its bytes as they are: what is no UTF-8 has surrogates, which no client can have meant."""
    try:
        pairs = parse_qsl(
            request.query_string.decode("utf-8", "surrogateescape"),
            keep_blank_values=True,
            errors="surrogateescape",
            max_num_fields=QUERY_FIELDS_MAX,
        )
    except ValueError as error:
        raise InvalidRequest(f"the query has more than {QUERY_FIELDS_MAX} parameters") from error
    return dict(reversed(pairs))


def name_of(texts: dict[str, str]) -> str:
    """The name, or nothing."""
    name = texts.get("name", "").strip()
    if not _is_utf_8(name) or "\0" in name or len(name.encode()) > NAME_BYTES_MAX:
        raise InvalidAttachment(f"a name is UTF-8 of at most {NAME_BYTES_MAX} bytes, without the zero byte")
    return name


def selector_of(texts: dict[str, str]) -> Selector:
    selector = Selector(name_of(texts), texts.get("id", "").strip())
    if not selector.name and not selector.attachment_id:
        raise MissingAttachment("attachment id or name required")
    return selector


def upload_of(request: Request, texts: dict[str, str], name: str) -> Upload:
    return Upload(
        name, _content_type(request, texts), _bytes_max(texts), is_true(texts.get("prevent_overwrite"))
    )


def info(named: Named) -> dict[str, object]:
    """An attachment as JSON."""
    attachment = named.attachment
    return {
        "id": attachment.id,
        "name": named.name,
        "size": attachment.size_bytes,
        "content_type": attachment.content_type,
        "created_at_unix": attachment.created_at_s,
        "updated_at_unix": attachment.updated_at_s,
        "plaintext_sha256": attachment.sha256.hex(),
    }


def download_headers(named: Named) -> list[Header]:
    """An attachment as headers. A header holds no control characters; a name may."""
    attachment = named.attachment
    headers = [
        (b"content-type", attachment.content_type.encode()),
        (b"x-attachment-id", attachment.id.encode()),
        (b"x-attachment-name", named.name.translate(_CONTROLS).encode()),
        (b"x-attachment-created-at", b"%d" % attachment.created_at_s),
        (b"x-attachment-updated-at", b"%d" % attachment.updated_at_s),
        (b"x-attachment-sha256", attachment.sha256.hex().encode()),
    ]
    if attachment.size_bytes:
        headers.append((b"x-attachment-size", b"%d" % attachment.size_bytes))
    return headers


def _content_type(request: Request, texts: dict[str, str]) -> str:
    sent = request.header(b"content-type") or ""
    by_header = sent.encode("latin-1").decode("utf-8", "surrogateescape")
    text = texts.get("content_type", "").strip() or by_header or _CONTENT_TYPE_DEFAULT
    is_long = len(text.encode("utf-8", "surrogateescape")) > CONTENT_TYPE_BYTES_MAX
    if not _is_utf_8(text) or is_long or any(ord(letter) in _CONTROLS for letter in text):
        raise InvalidAttachment(
            f"a content type is printable UTF-8 of at most {CONTENT_TYPE_BYTES_MAX} bytes"
        )
    return text


def _bytes_max(texts: dict[str, str]) -> int | None:
    """None: as large as it likes."""
    text = texts.get("max_bytes", "").strip()
    if not text:
        return UPLOAD_BYTES_DEFAULT
    size_bytes = parse_int64(text)
    if size_bytes is None or size_bytes < 0:
        raise InvalidMaxBytes("max_bytes must be a size in bytes; 0 is no limit")
    return size_bytes or None


def _is_utf_8(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)
