"""Boundaries and names of parts as header values have them."""

import pytest

from holdfast.queue.protocol.lockd.multipart.reader import (
    InvalidContentType,
    MultipartError,
    boundary_of,
    parameters_of,
    part_name,
)


@pytest.mark.parametrize(
    ("content_type", "boundary"),
    [
        ("multipart/related; boundary=BOUND1", b"BOUND1"),
        ('multipart/form-data; boundary="a b"', b"a b"),
        ("Multipart/Mixed;charset=utf-8;BOUNDARY=x", b"x"),
        (r'multipart/related; boundary="a\"b"', b'a"b'),
        ('multipart/related; type="application/json; boundary=no"; boundary=yes', b"yes"),
        ("multipart/related; boundary=a/b=c?d", b"a/b=c?d"),
        ("multipart/related ; boundary = spaced", b"spaced"),
        ("multipart/related; boundary=" + "b" * 70, b"b" * 70),
        ("multipart/related; boundary=first; boundary=second", b"first"),
    ],
)
def test_a_boundary_is_found(content_type: str, boundary: bytes) -> None:
    assert boundary_of(content_type) == boundary


@pytest.mark.parametrize(
    "content_type", [None, "", "application/json", "text/plain; x=multipart/related", "multipart"]
)
def test_what_is_not_multipart_is_refused_as_such(content_type: str | None) -> None:
    with pytest.raises(InvalidContentType):
        boundary_of(content_type)


@pytest.mark.parametrize(
    "content_type",
    [
        "multipart/form-data",
        "multipart/form-data; boundary=",
        'multipart/form-data; boundary=""',
        'multipart/form-data; boundary="ends with a space "',
        "multipart/form-data; boundary=" + "b" * 71,
        'multipart/form-data; boundary="é"',
        'multipart/form-data; boundary="open',
        "multipart/form-data; =; boundary=x",
    ],
)
def test_a_boundary_that_is_none_is_refused(content_type: str) -> None:
    with pytest.raises(MultipartError):
        boundary_of(content_type)


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b'Content-Disposition: form-data; name="meta"', "meta"),
        (b"content-disposition:form-data;name=meta", "meta"),
        (b'CONTENT-DISPOSITION: Form-Data; filename="; name=x"; name="meta"', "meta"),
        (b'Content-Type: a/b\r\nContent-Disposition: form-data;\r\n\tname="meta"', "meta"),
        (b'Content-Disposition: form-data; name="a"\r\nContent-Disposition: form-data; name="b"', "a"),
        (b'Content-Disposition: attachment; name="meta"', ""),
        (b'Content-Disposition: form-data; filename="meta"', ""),
        (b"Content-Type: application/json", ""),
        (b"", ""),
        (b'Content-Disposition: form-data; name="\xff"', "\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_the_name_of_a_part_is_that_of_its_disposition(head: bytes, name: str) -> None:
    assert part_name(head) == name


def test_reading_parameters_ends_at_nonsense() -> None:
    assert parameters_of("form-data; a=1; ;; b=2") == ("form-data", {"a": "1"})


def test_a_long_open_quote_costs_no_more_than_its_length() -> None:
    assert parameters_of('x; a="' + "\\\\" * 50_000) == ("x", {})
