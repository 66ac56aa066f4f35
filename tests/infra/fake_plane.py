"""A plane of one thread and a few dicts: enough of the wire to test clients against, and to make it misbehave."""

import hashlib
import json
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from holdfast.common.ids import new_xid

EXPIRES_AT_UNIX = 4_000_000_000


@dataclass(slots=True)
class Reply:
    """An answer; status 0 closes the connection without one."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(slots=True)
class Seen:
    """A request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    def members(self) -> dict[str, Any]:
        decoded: dict[str, Any] = json.loads(self.body)
        return decoded


@dataclass(slots=True)
class Key:
    """One key: what is committed, what is staged, who holds it."""

    version: int = 0
    token: int = 0
    document: bytes | None = None
    staged: bytes | None = None
    holder: dict[str, Any] | None = None
    attachments: dict[str, bytes] = field(default_factory=dict[str, bytes])


def reply(status: int, headers: dict[str, str] | None = None, **members: Any) -> Reply:
    return Reply(status, json.dumps(members).encode() + b"\n", headers or {})


class FakePlane:
    """Scripted replies (`then`) come first, then the default behaviour; `seen` has every request."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.keys: dict[str, Key] = {}
        self.is_draining = False
        self.takes_batches = False
        """lockd, which this fake resembles, has no `/v1/keepalive/batch`."""
        self._scripts: dict[str, deque[Reply]] = {}
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)

    def then(self, path: str, *replies: Reply) -> None:
        """Answer the next requests for this path like this."""
        self._scripts.setdefault(path, deque()).extend(replies)

    def wait_for(self, path: str, count: int = 1, timeout_s: float = 10.0) -> list[Seen]:
        """Block until so many requests for a path have arrived."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.at(path)) >= count, timeout_s), f"no {path}"
            return self.at(path)

    def at(self, path: str) -> list[Seen]:
        return [request for request in self.seen if request.path == path]

    def answer(self, request: Seen) -> Reply:
        with self._arrived:
            self.seen.append(request)
            script = self._scripts.get(request.path)
            result = script.popleft() if script else self._default(request)
            if self.is_draining:
                result.headers["Shutdown-Imminent"] = "true"
            self._arrived.notify_all()
            return result

    def _default(self, request: Seen) -> Reply:
        name = request.path.removeprefix("/v1/").replace("/", "_")
        handler = getattr(self, f"_{name}", None)
        return handler(request) if handler is not None else Reply(404, b"404 page not found\n")

    def _key(self, request: Seen) -> Key:
        name = request.query.get("key") or request.members().get("key", "")
        return self.keys.setdefault(name, Key())

    def _acquire(self, request: Seen) -> Reply:
        asked = request.members()
        key = self._key(request)
        if self.is_draining:
            return reply(503, {"Retry-After": "8"}, error="shutdown_draining", retry_after_seconds=8)
        if key.holder is not None:
            return reply(
                409,
                {"Retry-After": "30"},
                error="waiting",
                detail="lease already held",
                retry_after_seconds=30,
            )
        key.token += 1
        key.holder = {
            "namespace": asked["namespace"],
            "lease_id": new_xid(),
            "txn_id": asked.get("txn_id") or new_xid(),
            "key": asked["key"] or "generated",
            "owner": asked["owner"],
            "expires_at_unix": EXPIRES_AT_UNIX,
            "version": key.version,
            "fencing_token": key.token,
            "correlation_id": request.headers.get("x-correlation-id", ""),
        }
        if key.document is not None:
            key.holder["state_etag"] = _etag(key.document)
        return reply(200, **key.holder)

    def _refusal(self, request: Seen, key: Key) -> Reply | None:
        lease_id = request.headers.get("x-lease-id") or request.members().get("lease_id")
        if key.holder is None or key.holder["lease_id"] != lease_id:
            return reply(403, error="lease_required", detail="active lease required")
        return None

    def _keepalive(self, request: Seen) -> Reply:
        return self._refusal(request, self._key(request)) or reply(200, expires_at_unix=EXPIRES_AT_UNIX)

    def _keepalive_batch(self, request: Seen) -> Reply:
        if not self.takes_batches:
            return Reply(404, b"404 page not found\n")
        results: list[dict[str, Any]] = []
        for asked in request.members()["renewals"]:
            holder = self.keys.setdefault(asked["key"], Key()).holder
            if holder is None or holder["lease_id"] != asked["lease_id"]:
                results.append({"status": 403, "error": "lease_required", "detail": "active lease required"})
            else:
                token = asked["fencing_token"]
                results.append({"expires_at_unix": EXPIRES_AT_UNIX, "fencing_token": token})
        renewed = sum("expires_at_unix" in result for result in results)
        return reply(200, renewed=renewed, results=results)

    def _release(self, request: Seen) -> Reply:
        key = self._key(request)
        if self._refusal(request, key) is None:
            if key.staged is not None and not request.members().get("rollback"):
                key.document, key.version = key.staged, key.version + 1
            key.staged = key.holder = None
        return reply(200, released=True)

    def _get(self, request: Seen) -> Reply:
        key = self._key(request)
        is_public = request.query.get("public") == "1"
        if not is_public and (refused := self._refusal(request, key)):
            return refused
        is_staged = key.staged is not None and not is_public
        document = key.staged if is_staged else key.document
        if document is None:
            return Reply(204)
        version = key.version + 1 if is_staged else key.version
        return Reply(200, document, {"ETag": _etag(document), "X-Key-Version": str(version)})

    def _update(self, request: Seen) -> Reply:
        key = self._key(request)
        if refused := self._refusal(request, key):
            return refused
        current = key.version + (key.staged is not None)
        if int(request.headers.get("x-if-version", current)) != current:
            return reply(409, error="version_conflict", current_version=current)
        key.staged = request.body
        etag = _etag(request.body)
        return reply(
            200, new_version=key.version + 1, new_state_etag=etag, bytes=len(request.body), metadata={}
        )

    def _describe(self, request: Seen) -> Reply:
        return reply(200, namespace="default", key=request.query["key"], version=0, metadata={})

    def _attachments(self, request: Seen) -> Reply:
        key = self._key(request)
        if request.method == "POST":
            key.attachments[request.query["name"]] = request.body
            return reply(200, attachment=_info(request.query["name"], request.body), version=key.version + 1)
        if request.method == "DELETE":
            deleted = len(key.attachments)
            key.attachments.clear()
            return reply(200, deleted=deleted, version=key.version + 1)
        infos = [_info(name, content) for name, content in sorted(key.attachments.items())]
        return reply(200, namespace="default", key=request.query["key"], attachments=infos or None)

    def _attachment(self, request: Seen) -> Reply:
        key = self._key(request)
        content = key.attachments.get(request.query.get("name", ""))
        if request.method == "DELETE":
            key.attachments.pop(request.query.get("name", ""), None)
            return reply(200, deleted=content is not None, version=key.version + 1)
        if content is None:
            return reply(404, error="attachment_not_found", detail="attachment not found")
        name = request.query["name"].encode().decode("latin-1")
        return Reply(200, content, {"X-Attachment-Name": name, "X-Attachment-Size": str(len(content))})


def _etag(document: bytes) -> str:
    return hashlib.sha256(document).hexdigest()


def _info(name: str, content: bytes) -> dict[str, Any]:
    return {"id": f"id-{name}", "name": name, "size": len(content), "content_type": "text/plain"}


def _handler(plane: FakePlane) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Tests read `seen` instead."""

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            headers = {name.lower(): value for name, value in self.headers.items()}
            result = plane.answer(Seen(self.command, parts.path, query, headers, self._body()))
            if result.status == 0:
                self.close_connection = True
                return
            self.send_response(result.status)
            for name, value in result.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(result.body)))
            self.end_headers()
            self.wfile.write(result.body)

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            content = b""
            while size := int(self.rfile.readline(), 16):
                content += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return content

        do_GET = do_POST = do_DELETE = _serve

    return Handler


@contextmanager
def fake_plane() -> Iterator[tuple[FakePlane, str]]:
    """A running fake and its URL."""
    plane = FakePlane()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(plane))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield plane, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
