"""If-None-Match: which header names an ETag, and what an answer without a document costs."""

import time
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.common.express.message import Answer, Request, StreamAnswer
from holdfast.gateway.app import create_app
from holdfast.gateway.settings import GatewaySettings
from holdfast.state.protocol.lockd.documents import StateRoutes
from holdfast.state.protocol.lockd.fields import TAGS_CHARS_MAX, is_named
from holdfast.storage.intake import INLINE_BYTES_MAX
from holdfast.txn.layer.port import Member
from tests.infra.document_plane import Plane

TAG = sha256(b"{}").hexdigest()
OTHER = sha256(b"[]").hexdigest()
KEY = Member("default", "orders")


@pytest.mark.parametrize(
    "header",
    [
        TAG,
        f'"{TAG}"',
        f'W/"{TAG}"',
        f'"{OTHER}", "{TAG}"',
        f'{OTHER},W/"{TAG}","more"',
        f' ,, "{TAG}" ,',
        f'"a,b", {TAG}',
        f"{TAG}, broken\x01",
        "*",
    ],
)
def test_a_header_that_has_the_tag_names_it(header: str) -> None:
    assert is_named(TAG, header)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        OTHER,
        f'"{OTHER}"',
        TAG.upper(),
        TAG[:-1],
        f"x{TAG}",
        f'"{TAG}-gzip"',
        f'"{TAG}',
        f'{TAG}"',
        f'"a,{TAG},b"',
        f'"{TAG}" "{OTHER}"',
        f"{TAG} {OTHER}",
        f"broken\x01, {TAG}",
        f'w/"{TAG}"',
        "*, *",
        "W/",
        '"' * 100,
        "," * 100,
        f'{TAG}, "{"x" * TAGS_CHARS_MAX}"',
    ],
)
def test_any_other_header_names_nothing(header: str | None) -> None:
    assert not is_named(TAG, header)


@given(st.text(alphabet=f'{TAG[0]}aW/", \t*\xe4', max_size=200), st.text(alphabet='", aW/', max_size=5))
def test_no_header_breaks_anything(text: str, end: str) -> None:
    is_named(TAG, text)
    is_named("a", text + TAG + end)


@given(st.lists(st.sampled_from(["{0}", '"{0}"', 'W/"{0}"']), min_size=1, max_size=5), st.data())
def test_a_list_names_each_of_its_tags(forms: list[str], data: st.DataObject) -> None:
    tags = [sha256(b"%d" % number).hexdigest() for number in range(len(forms))]
    comma = data.draw(st.sampled_from([",", ", ", " , ", ",,"]))
    header = comma.join(form.format(tag) for form, tag in zip(forms, tags, strict=True))

    assert all(is_named(tag, header) for tag in tags)
    assert not is_named(TAG, header)


@pytest.mark.parametrize("piece", ['"', ",", " ", "W/", 'W/"', "a,", '"a",', '" ', "\t,"])
def test_a_long_header_is_looked_at_once(piece: str) -> None:
    header = f"{(piece * TAGS_CHARS_MAX)[: TAGS_CHARS_MAX - 64]}{TAG}"
    began_s = time.process_time()

    is_named(TAG, header)

    assert time.process_time() - began_s < 0.1  # A search that goes back would take minutes.


def request(if_none_match: str) -> Request:
    headers = [(b"if-none-match", if_none_match.encode("latin-1"))]
    return Request("GET", "/v1/get", b"key=orders&public=1", headers, b"", None, None, "id")


async def test_no_blob_is_opened_for_a_reader_that_has_the_document(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = b'"%b"' % (b"x" * INLINE_BYTES_MAX)
    claim = await plane.acquire(KEY)
    view = await plane.update(KEY, claim, text)
    await plane.release(KEY, claim)
    routes = StateRoutes(GatewaySettings.isolated(store="mem://"))
    routes.service = plane.state
    opened: list[Any] = []
    genuine = plane.state.open_content

    def open_content(*arguments: Any) -> AsyncIterator[bytes]:
        opened.append(arguments)
        return genuine(*arguments)

    monkeypatch.setattr(plane.state, "open_content", open_content)

    same = await routes.get(request(view.etag), None)
    other = await routes.get(request(OTHER), None)

    assert isinstance(same, Answer)
    assert (same.status, same.body) == (304, b"")
    assert same.headers == [(b"etag", view.etag.encode()), (b"x-key-version", b"1")]
    assert isinstance(other, StreamAnswer)
    assert len(opened) == 1


def test_the_docs_tell_the_header_and_its_answer() -> None:
    paths = create_app(GatewaySettings.isolated(store="mem://")).openapi()["paths"]

    for method in ("get", "post"):
        operation = paths["/v1/get"][method]
        assert "If-None-Match" in [parameter["name"] for parameter in operation["parameters"]]
        assert "ETag" in operation["responses"]["304"]["headers"]
        assert "content" not in operation["responses"]["304"]
        assert operation["responses"]["204"]["description"] == "There is no document."
