"""dflockd's protocol without a network: what is sent, what an answer means, which server has a key."""

import pytest

from holdfast.client.errors import InvalidArgument, RequestRefused, UnexpectedAnswer
from holdfast.client.tcp import protocol
from holdfast.client.tcp.options import Server, server_of, shard_of


@pytest.mark.parametrize(
    ("request_", "lines"),
    [
        (protocol.lock_request("l", "k", 1, 10, None), b"l\nk\n10\n"),
        (protocol.lock_request("l", "k", 1, 0.2, 30), b"l\nk\n1 30\n"),
        (protocol.lock_request("l", "k", 3, 10, 30), b"sl\nk\n10 3 30\n"),
        (protocol.lock_request("e", "k", 1, None), b"e\nk\n\n"),
        (protocol.lock_request("e", "k", 3, 30), b"se\nk\n3 30\n"),
        (protocol.request("signal", "c", " x "), b"signal\nc\n x \n"),
        (protocol.request("stats"), b"stats\n_\n\n"),
    ],
)
def test_a_request_is_three_lines(request_: bytes, lines: bytes) -> None:
    assert request_ == lines


@pytest.mark.parametrize(
    ("key", "argument"), [("k" * 257, ""), ("", ""), ("a\tb", ""), ("k", "a\nb"), ("k", "x\r")]
)
def test_what_does_not_fit_into_a_line_is_refused(key: str, argument: str) -> None:
    with pytest.raises(InvalidArgument):
        protocol.request("signal", key, argument)


def test_what_a_grant_answers() -> None:
    assert protocol.granted_of("ok abc 33") == protocol.Granted("abc", 33)
    assert protocol.granted_of("acquired abc 33") == protocol.Granted("abc", 33)
    for broken in ("ok abc", "ok abc x", "", "ok  33 1"):
        with pytest.raises((UnexpectedAnswer, RequestRefused)):
            protocol.granted_of(broken)


def test_keys_are_shared_out_by_crc32() -> None:
    servers = [Server("a", 1), Server("b", 2), Server("c", 3)]

    # CRC-32 (IEEE) of "123456789" is 0xcbf43926, the check value of that polynomial.
    assert shard_of("123456789", servers) is servers[0xCBF43926 % 3]
    assert {shard_of(f"key-{number}", servers) for number in range(50)} == set(servers)


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("host", Server("host", 6388)),
        ("host:1", Server("host", 1)),
        ("[::1]:7", Server("::1", 7)),
        ("::1", Server("::1", 6388)),
    ],
)
def test_a_server_is_host_and_port(text: str, server: Server) -> None:
    assert server_of(text) == server
    assert server_of(str(server)) == server
