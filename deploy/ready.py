"""The health check of a container: ends with status 0 when the server in it says that it is ready.

It asks the listener that HOLDFAST_HEALTH_LISTEN names, which knows no TLS; if there is none, the server itself, where
HOLDFAST_LISTEN says, and with TLS if that is what it speaks. Standard library only, so that asking every few seconds
costs next to nothing.
"""

import os
import re
import socket
import ssl
import sys
from pathlib import Path

TIMEOUT_S = 3.0
ANSWER_BYTES_MAX = 65536
REQUEST = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n?", re.DOTALL)


class NotReadyError(Exception):
    """Why the server is not ready."""


def main() -> int:
    try:
        answer = ask()
    except (OSError, ValueError, NotReadyError) as error:
        sys.stdout.write(f"not ready: {error}\n")
        return 1
    if answer.startswith(b"HTTP/1.1 200 "):
        return 0
    reason = answer.partition(b"\r\n\r\n")[2].decode(errors="replace").strip()
    sys.stdout.write(f"not ready: {reason or 'the server gave no answer'}\n")
    return 1


def ask() -> bytes:
    beside = setting("HEALTH_LISTEN")
    if beside and beside != "off":
        return ask_plainly(connect_tcp(beside))
    try:
        answer = ask_plainly(connect())
    except ConnectionError:
        answer = b""
    # A server that wants TLS sends an alert, or hangs up.
    return answer if answer.startswith(b"HTTP/") else ask_with_tls(connect())


def setting(name: str) -> str:
    return os.environ.get(f"HOLDFAST_{name}") or os.environ.get(f"LOCKD_{name}") or ""


def connect() -> socket.socket:
    listen = setting("LISTEN")
    if setting("LISTEN_PROTO") != "unix":
        return connect_tcp(listen or ":9341")
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(TIMEOUT_S)
    connection.connect(listen)
    return connection


def connect_tcp(listen: str) -> socket.socket:
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    everywhere = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
    return socket.create_connection((everywhere.get(host, host), int(port)), TIMEOUT_S)


def ask_plainly(connection: socket.socket) -> bytes:
    with connection:
        connection.sendall(REQUEST)
        answer = b""
        while len(answer) < ANSWER_BYTES_MAX and (piece := connection.recv(ANSWER_BYTES_MAX)):
            answer += piece
        return answer


def ask_with_tls(connection: socket.socket) -> bytes:
    """With the certificate of the server itself, which is also one for clients. It need not prove who it is to us."""
    with connection:
        folder = setting("CONFIG_DIR") or str(Path(os.environ.get("HOME", "/"), ".holdfast"))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        show_certificate(context, Path(setting("BUNDLE") or Path(folder, "server.pem")).read_bytes())
        return ask_plainly(context.wrap_socket(connection))


def show_certificate(context: ssl.SSLContext, bundle: bytes) -> None:
    """OpenSSL takes the first certificate of a file for ours, a bundle begins with its CA: the key tells them apart."""
    certificates = CERTIFICATE.findall(bundle)
    keys = CERTIFICATE.sub(b"", bundle)
    for certificate in certificates:
        descriptor = os.memfd_create("bundle")
        try:
            os.write(descriptor, certificate + b"\n" + keys)
            context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        except ssl.SSLError:
            continue
        finally:
            os.close(descriptor)
        return
    raise NotReadyError("the bundle has no certificate for its key")


if __name__ == "__main__":
    sys.exit(main())
