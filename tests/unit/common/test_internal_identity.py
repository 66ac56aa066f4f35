"""Signatures between processes: what they cover, how long they hold, and that nothing else passes for one."""

from base64 import b64encode
from pathlib import Path

import pytest
from pydantic_core import to_json

from holdfast.common.express.message import Request
from holdfast.common.express.route import Route
from holdfast.common.express.traits import Traits
from holdfast.common.role import Role
from holdfast.common.security.bundle import InvalidBundle
from holdfast.common.security.internal_identity import (
    HEADER,
    SKEW_S_MAX,
    InternalForbidden,
    Signer,
    Verifier,
    _Mac,
    identify_with,
    internal_keys,
)
from holdfast.common.security.principal import ANONYMOUS, Permission, Principal, PrincipalKind
from holdfast.common.settings import PlaneSettings
from holdfast.common.telemetry.metrics import Registry
from holdfast.common.upstream.peers import Peers

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
NOW_S = 1_800_000_000.0
CERTIFICATE = bytes(range(256)) * 2


def _signed(
    method: str = "POST",
    target: str = "/internal/v1/txn/decide?a=b",
    body: bytes | None = b"{}",
    certificate: bytes | None = None,
    client: Principal | None = None,
) -> bytes:
    client = client or Principal.of_certificate(certificate)
    return Signer(KEY, Role.GATEWAY, lambda: NOW_S).sign(method, target, body, client)


def _verifier(*keys: bytes, later_s: float = 0.0) -> Verifier:
    return Verifier(keys or (KEY,), lambda: NOW_S + later_s)


async def _handler(request: Request, body: None) -> None:
    raise AssertionError("not called")


def _route(path: str) -> Route:
    permission = Permission.INTERNAL if path.startswith("/internal/") else Permission.CLIENT
    return Route(path=path, methods=("POST",), handler=_handler, traits=Traits(permission=permission))  # type: ignore[arg-type]  # never answers


def _request(
    path: str, headers: list[tuple[bytes, bytes]], *, query: bytes = b"", body: bytes = b"{}"
) -> Request:
    return Request("POST", path, query, headers, body, None, b"certificate of the connection", "cid")


def _signed_claims(
    role: bytes = b"gateway", signed_s: bytes = b"%d" % NOW_S, certificate: bytes = b""
) -> bytes:
    """What only a holder of the key can send, and none of our processes does."""
    _, _, _, digest, *_ = _signed().split(b".")
    claims = b".".join([b"v1", role, signed_s, digest, certificate])
    return b"%b.%b" % (claims, _Mac(KEY).of("POST", "/internal/v1/txn/decide?a=b", claims))


@pytest.mark.parametrize(
    "claims",
    [
        {"signed_s": b"soon"},
        {"signed_s": b""},
        {"signed_s": b"9" * 5000},
        {"signed_s": b"-1"},
        {"role": b"\xff\xfe"},
        {"role": b"stranger"},
        {"role": b""},
        {"certificate": b"A"},
        {"certificate": b"\xff\xff"},
    ],
    ids=lambda claims: str(claims)[:30],
)
def test_signed_nonsense_is_refused(claims: dict[str, bytes]) -> None:
    with pytest.raises(InternalForbidden):
        _verifier().check("POST", "/internal/v1/txn/decide?a=b", _signed_claims(**claims), b"{}")


def test_the_same_claims_without_nonsense_are_taken() -> None:
    caller = _verifier().check("POST", "/internal/v1/txn/decide?a=b", _signed_claims(), b"{}")

    assert caller.role == Role.GATEWAY


@pytest.mark.parametrize("certificate", [None, b"\x00", b"\x00\xff", CERTIFICATE])
def test_a_signature_tells_who_called_and_for_whom(certificate: bytes | None) -> None:
    value = _signed(certificate=certificate)

    caller = _verifier().check("POST", "/internal/v1/txn/decide?a=b", value, b"{}")

    assert (caller.role, caller.client.certificate) == ("gateway", certificate)


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("GET", "/internal/v1/txn/decide?a=b", b"{}"),
        ("POST", "/internal/v1/txn/keep?a=b", b"{}"),
        ("POST", "/internal/v1/txn/decide", b"{}"),
        ("POST", "/internal/v1/txn/decide?a=b", b"{ }"),
        ("POST", "/internal/v1/txn/decide?a=b", b""),
    ],
)
def test_a_signature_is_for_one_call_only(method: str, target: str, body: bytes) -> None:
    with pytest.raises(InternalForbidden):
        _verifier().check(method, target, _signed(), body)


@pytest.mark.parametrize(
    "client",
    [
        Principal(PrincipalKind.TOKEN, "a.b\n€", scopes=("read", "queues:a b")),
        Principal(PrincipalKind.JWT, "alice", CERTIFICATE, frozenset((Permission.CLIENT,))),
        Principal(PrincipalKind.CERTIFICATE, "mapped", CERTIFICATE),
        Principal(PrincipalKind.ANONYMOUS, permissions=frozenset()),
    ],
    ids=lambda client: client.kind,
)
def test_a_client_is_told_with_all_that_its_proof_says(client: Principal) -> None:
    value = _signed(client=client)
    request = _request("/internal/v1/txn/decide", [])

    caller = _verifier().check(request.method, "/internal/v1/txn/decide?a=b", value, request.body)

    assert caller.client == client


@pytest.mark.parametrize(
    "proved",
    [
        {"kind": "internal"},
        {"kind": "admin"},
        {"permissions": ["client", "internal"]},
        {"permissions": ["everything"]},
        {"subject": 1},
        {"scopes": "read"},
        {"certificate": "AA"},
    ],
    ids=str,
)
def test_a_signed_client_that_none_can_be_is_refused(proved: dict[str, object]) -> None:
    members = {"kind": "token", "subject": "a", "permissions": ["client"], "scopes": [], **proved}
    text = b64encode(to_json(members), b"-_").rstrip(b"=")
    claims = b".".join([b"v2", b"gateway", b"%d" % NOW_S, _signed().split(b".")[3], b"", text])
    value = b"%b.%b" % (claims, _Mac(KEY).of("POST", "/internal/v1/txn/decide?a=b", claims))

    with pytest.raises(InternalForbidden, match="client in the signature"):
        _verifier().check("POST", "/internal/v1/txn/decide?a=b", value, b"{}")


@pytest.mark.parametrize("kind", [PrincipalKind.CERTIFICATE, PrincipalKind.TOKEN])
def test_every_changed_byte_of_a_signature_is_noticed(kind: PrincipalKind) -> None:
    subject = "a" if kind is PrincipalKind.TOKEN else ""
    value = _signed(client=Principal(kind, subject, CERTIFICATE))
    for position in range(len(value)):
        changed = (
            value[:position]
            + (b"A" if value[position : position + 1] != b"A" else b"B")
            + value[position + 1 :]
        )

        with pytest.raises(InternalForbidden):
            _verifier().check("POST", "/internal/v1/txn/decide?a=b", changed, b"{}")


@pytest.mark.parametrize(
    "value", [b"", b".", b"v1.gateway", b"." * 5, b"v1.gateway.x.stream..", b"\xff" * 100]
)
def test_what_is_no_signature_is_refused(value: bytes) -> None:
    with pytest.raises(InternalForbidden):
        _verifier().check("POST", "/internal/v1/txn/decide?a=b", value, b"{}")


@pytest.mark.parametrize("later_s", [SKEW_S_MAX + 1, -SKEW_S_MAX - 1])
def test_a_signature_of_another_time_is_refused(later_s: float) -> None:
    with pytest.raises(InternalForbidden, match="clocks"):
        _verifier(later_s=later_s).check("POST", "/internal/v1/txn/decide?a=b", _signed(), b"{}")


def test_an_older_key_still_counts_and_a_foreign_one_does_not() -> None:
    _verifier(OTHER_KEY, KEY).check("POST", "/internal/v1/txn/decide?a=b", _signed(), b"{}")

    with pytest.raises(InternalForbidden, match="secret"):
        _verifier(OTHER_KEY).check("POST", "/internal/v1/txn/decide?a=b", _signed(), b"{}")


def test_a_streamed_body_is_only_taken_where_it_may_be() -> None:
    value = _signed(body=None)
    _verifier().check("POST", "/internal/v1/txn/decide?a=b", value, b"whatever", may_stream=True)

    with pytest.raises(InternalForbidden, match="body"):
        _verifier().check("POST", "/internal/v1/txn/decide?a=b", value, b"whatever")


def test_an_internal_route_without_a_signature_is_refused() -> None:
    identify = identify_with(_verifier())

    with pytest.raises(InternalForbidden):
        identify(_route("/internal/v1/rm/apply"), _request("/internal/v1/rm/apply", []))


def test_the_principal_of_an_internal_call_is_the_process_that_makes_it() -> None:
    path = "/internal/v1/rm/apply"
    request = _request(path, [(HEADER, _signed(target=path))])

    identify_with(_verifier())(_route(path), request)

    assert request.principal.kind is PrincipalKind.INTERNAL
    assert request.principal.name == "gateway"
    assert request.principal.permissions == {Permission.INTERNAL}


def test_a_certificate_is_not_enough_for_an_internal_route_and_a_signature_no_more_than_its_client() -> None:
    request = _request("/v1/acquire", [(HEADER, _signed(target="/v1/acquire", certificate=None))])

    identify_with(_verifier())(_route("/v1/acquire"), request)

    assert request.principal is ANONYMOUS
    assert not request.principal.may(Permission.INTERNAL)


def test_an_open_route_without_a_signature_keeps_the_certificate_of_its_connection() -> None:
    request = _request("/v1/acquire", [])

    identify_with(_verifier())(_route("/v1/acquire"), request)

    assert request.principal.certificate == b"certificate of the connection"


@pytest.mark.parametrize("certificate", [None, CERTIFICATE])
def test_an_open_route_takes_the_certificate_of_the_client_in_front(certificate: bytes | None) -> None:
    value = _signed(target="/v1/acquire?x=1", certificate=certificate)
    request = _request("/v1/acquire", [(HEADER, value)], query=b"x=1")

    identify_with(_verifier())(_route("/v1/acquire"), request)

    assert request.principal.certificate == certificate


def test_a_forged_signature_is_refused_on_an_open_route_too() -> None:
    request = _request("/v1/acquire", [(HEADER, _signed(target="/v1/release"))])

    with pytest.raises(InternalForbidden):
        identify_with(_verifier())(_route("/v1/acquire"), request)


def test_processes_with_the_same_secret_have_the_same_key_and_others_another() -> None:
    same = [PlaneSettings.isolated(internal_secret="a secret of some length") for _ in range(2)]
    other = PlaneSettings.isolated(internal_secret="another secret of some length")

    assert internal_keys(same[0]) == internal_keys(same[1])
    assert internal_keys(same[0]) != internal_keys(other)
    assert len(internal_keys(other)[0]) == 32


def _bundle(path: Path, *roots: bytes) -> Path:
    kinds = ("KRYPT-SYSTEM-ROOT-KEY", "HOLDFAST-OLD-ROOT-KEY")
    path.write_text(
        "".join(
            f"-----BEGIN {kind}-----\nKey-Length: 32\n\n{b64encode(root).decode()}\n-----END {kind}-----\n"
            for kind, root in zip(kinds, roots, strict=False)
        )
    )
    return path


def test_processes_with_bundles_of_one_root_key_understand_each_other_through_a_rotation(
    tmp_path: Path,
) -> None:
    old, new = b"o" * 32, b"n" * 32
    before = PlaneSettings.isolated(bundle=_bundle(tmp_path / "before.pem", old))
    after = PlaneSettings.isolated(bundle=_bundle(tmp_path / "after.pem", new, old))

    value = Signer(internal_keys(before)[0], Role.TXN, lambda: NOW_S).sign(
        "POST", "/internal/v1/rm/apply", b"{}"
    )

    caller = Verifier(internal_keys(after), lambda: NOW_S).check(
        "POST", "/internal/v1/rm/apply", value, b"{}"
    )
    assert caller.role == "txn"
    assert internal_keys(after)[0] not in (new, old)


def test_a_bundle_without_a_root_key_is_told(tmp_path: Path) -> None:
    settings = PlaneSettings.isolated(
        bundle=_bundle(tmp_path / "server.pem"),
        **{f"peer_{service}": "http://127.0.0.1:1" for service in ("leases", "state", "queue", "txn")},
    )

    with pytest.raises(InvalidBundle, match=r"no root key.*--internal-secret"):
        Peers(settings, Role.GATEWAY, Registry())


def test_a_peer_with_tls_needs_a_bundle() -> None:
    peers = {f"peer_{service}": "https://127.0.0.1:1" for service in ("leases", "state", "queue", "txn")}
    settings = PlaneSettings.isolated(internal_secret="a secret of some length", **peers)

    with pytest.raises(InvalidBundle, match="https://"):
        Peers(settings, Role.GATEWAY, Registry())
