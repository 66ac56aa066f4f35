"""The JSON error envelope, and lockd's dialect of it: how a HoldfastError looks to a client."""

import math
from typing import Final

from pydantic import BaseModel, Field, ValidationError
from pydantic_core import to_json

from holdfast.common.errors import HoldfastError, InvalidBody, PathNotFound
from holdfast.common.express.message import JSON_HEADERS, Answer, Header

_DETAILS_MAX: Final = 5
_DETAIL_CHARS_MAX: Final = 1000
_NO_PAGE: Final = b"404 page not found\n"
_TEXT_HEADERS: Final[list[Header]] = [(b"content-type", b"text/plain; charset=utf-8")]


class ErrorBody(BaseModel):
    """Every error is this object; `error` is the stable code to switch on, `detail` is for people."""

    error: str
    detail: str | None = None
    leader_endpoint: str | None = None
    current_version: int | None = None
    current_etag: str | None = None
    retry_after_seconds: int | None = Field(default=None, description="Also sent as Retry-After.")


def error_answer(error: HoldfastError) -> Answer:
    """The envelope of an error, with Retry-After when the error names a time."""
    headers: list[Header] = list(JSON_HEADERS)
    if error.retry_after_s is not None and error.retry_after_s > 0:
        headers.append((b"retry-after", b"%d" % math.ceil(error.retry_after_s)))
    headers.extend((name.lower().encode(), value.encode()) for name, value in error.headers().items())
    return Answer(error.status, to_json(error_members(error)) + b"\n", headers)


def error_members(error: HoldfastError) -> dict[str, object]:
    """The members of the envelope, for an error that is one result among many."""
    members: dict[str, object] = {"error": error.code}
    if error.detail:
        members["detail"] = error.detail
    members.update((name, value) for name, value in error.fields().items() if value)
    if error.retry_after_s is not None and error.retry_after_s > 0:
        members["retry_after_seconds"] = math.ceil(error.retry_after_s)
    return members


class EnvelopeDialect:
    """The envelope for everything: at paths that belong to no protocol."""

    prefixes: tuple[str, ...] = ()
    error_model: type[BaseModel] = ErrorBody

    def answer(self, error: HoldfastError) -> Answer:
        return error_answer(error)


class LockdDialect(EnvelopeDialect):
    """The envelope, but for unknown paths: lockd answers them with the page of Go's router, and its clients know it."""

    prefixes = ("/v1",)

    def answer(self, error: HoldfastError) -> Answer:
        return (
            Answer(404, _NO_PAGE, _TEXT_HEADERS) if isinstance(error, PathNotFound) else error_answer(error)
        )


ENVELOPE: Final = EnvelopeDialect()
LOCKD: Final = LockdDialect()


def internal_error() -> HoldfastError:
    """What a client is told of a defect: nothing but that it is ours. The log has the rest."""
    return HoldfastError("internal server error")


def invalid_body(error: ValidationError) -> InvalidBody:
    """The places where a body is wrong, without repeating what was sent."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    texts = [_problem_text(problem["loc"], problem["msg"]) for problem in problems[:_DETAILS_MAX]]
    if len(problems) > _DETAILS_MAX:
        texts.append(f"and {len(problems) - _DETAILS_MAX} more")
    return InvalidBody("; ".join(texts)[:_DETAIL_CHARS_MAX])


def _problem_text(location: tuple[int | str, ...], message: str) -> str:
    return f"{'.'.join(map(str, location))}: {message}" if location else message
