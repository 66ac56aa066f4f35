"""The health check of a container: ends with status 0 when the server in it says that it is ready.

It knows nothing but sockets, so that asking every few seconds costs next to nothing.
"""

import os
import socket
import sys

TIMEOUT_S = 3.0


def main() -> int:
    port = int(os.environ.get("HOLDFAST_LISTEN", ":9341").rpartition(":")[2])
    try:
        with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
            connection.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer = b""
            while piece := connection.recv(65536):
                answer += piece
    except OSError as error:
        sys.stdout.write(f"not ready: {error}\n")
        return 1
    if answer.startswith(b"HTTP/1.1 200 "):
        return 0
    reason = answer.partition(b"\r\n\r\n")[2].decode(errors="replace").strip()
    sys.stdout.write(f"not ready: {reason}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
