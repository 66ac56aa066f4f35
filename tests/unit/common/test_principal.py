"""Who makes a request: found out when it is asked, the same object for all who are nobody in particular."""

from cryptography.hazmat.primitives.serialization import Encoding

from holdfast.common.express.message import Request
from holdfast.common.fields import owner_of
from holdfast.common.security.principal import ANONYMOUS, OUTSIDE, Permission, Principal, PrincipalKind
from tests.service.common.certificates import Authority


def _request(principal: Principal | bytes | None) -> Request:
    return Request("POST", "/v1/acquire", b"", [], b"", None, principal, "cid")


def test_all_anonymous_requests_share_one_principal() -> None:
    assert _request(None).principal is ANONYMOUS
    assert Principal.of_certificate(None) is ANONYMOUS
    assert (ANONYMOUS.kind, ANONYMOUS.name) == (PrincipalKind.ANONYMOUS, "")


def test_nobody_from_outside_is_a_process_of_the_plane() -> None:
    for principal in (ANONYMOUS, Principal.of_certificate(b"any")):
        assert principal.permissions == OUTSIDE
        assert not principal.may(Permission.INTERNAL)


def test_a_certificate_says_its_name_and_stays_at_hand() -> None:
    certificate, _ = Authority().issue("worker-1")
    der = certificate.public_bytes(Encoding.DER)

    request = _request(der)

    assert request.principal is request.principal
    assert request.principal.certificate == der
    assert request.principal.name == f"CN=worker-1#{certificate.serial_number:x}"


def test_the_owner_of_a_lease_is_who_the_caller_is_whatever_proved_it() -> None:
    certificate, _ = Authority().issue("worker-1")
    shown = Principal.of_certificate(certificate.public_bytes(Encoding.DER))

    assert owner_of("me", ANONYMOUS) == "me"
    assert owner_of("me", shown) == f"me/CN=worker-1#{certificate.serial_number:x}"
    assert owner_of("me", Principal(PrincipalKind.JWT, "alice")) == "me/alice"
