"""`holdfast bench query`: what a query costs by what it matches, beside a scan, and what the index costs an update."""

import asyncio
import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from http.client import HTTPConnection
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlencode, urlsplit

import typer

from holdfast.cli.bench.measure import SERVE, BenchError, Server, started
from holdfast.cli.output import Output, OutputFormat, failure, print_result
from holdfast.state.layer.records import DOCUMENTS
from holdfast.state.layer.records_pb2 import Document
from holdfast.storage.disk.store import open_disk
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Transaction
from holdfast.storage.records_pb2 import Payload

PAGE: Final = 50
MATCHES: Final = (1, 10, PAGE, 500)
INDEXED, UNINDEXED = "default", "unindexed"
FILL_DOCUMENTS: Final = 500
BUILD_S_MAX: Final = 3600.0
SUMMARY_S_MAX: Final = 120.0
DOCUMENT_BYTES: Final = 1000
LARGE_ROWS: Final = 30_000

Documents = Annotated[
    int, typer.Option("--documents", "-d", min=100, max=1_000_000, help="How many documents of one kilobyte.")
]
Seconds = Annotated[
    float, typer.Option("--seconds", "-s", min=0.1, max=600, help="How long to measure each kind of request.")
]


def query(documents: Documents = 10_000, seconds: Seconds = 2.0, output: Output = OutputFormat.TEXT) -> None:
    """Queries by number of matches, pages of documents by index and by scan, updates with the index on and off."""
    try:
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
            members = measure(Path(name), documents, seconds)
    except (BenchError, OSError) as error:
        raise failure(str(error)) from None
    print_result(members, text_of(members), output)


def measure(folder: Path, documents: int, seconds: float) -> dict[str, object]:
    asyncio.run(_fill(folder / "store", documents))
    with started(folder, (*SERVE, "--store", f"disk://{folder}/store", "--qrf-disabled")) as server:
        plane = Plane(server, documents)
        plane.configure(UNINDEXED, "scan")
        build_s = plane.wait_for_index()
        queries = {
            f"{count}": plane.measured(partial(plane.keys, count), seconds)
            for count in MATCHES
            if count <= documents
        }
        by_index = plane.measured(lambda: plane.page("index"), seconds)
        by_scan = plane.measured(lambda: plane.page("scan"), seconds)
        plane.publish(INDEXED, "large", large_document())
        plane.wait_for_summary()
        beside_large = plane.measured(partial(plane.keys, 1), seconds)
        indexed = plane.measured(lambda: plane.update(INDEXED), seconds)
        unindexed = plane.measured(lambda: plane.update(UNINDEXED), seconds)
        plane.close()
    return {
        "documents": documents,
        "build_s": round(build_s, 1),
        "query_cpu_us_by_matches": {count: _us(cpu_s) for count, (_, cpu_s) in queries.items()},
        "query_per_s_by_matches": {count: round(rate, 1) for count, (rate, _) in queries.items()},
        "page_documents": PAGE,
        "index_pages_per_s": round(by_index[0], 1),
        "scan_pages_per_s": round(by_scan[0], 2),
        "index_to_scan": round(by_index[0] / by_scan[0], 2),
        "index_page_cpu_us": _us(by_index[1]),
        "scan_page_cpu_us": _us(by_scan[1]),
        "update_cpu_us_index_on": _us(indexed[1]),
        "update_cpu_us_index_off": _us(unindexed[1]),
        "index_cost_of_update": round(indexed[1] / unindexed[1], 3),
        "large_document_bytes": len(large_document()),
        "query_cpu_us_beside_large_document": _us(beside_large[1]),
    }


def text_of(members: dict[str, Any]) -> str:
    cpu = members["query_cpu_us_by_matches"]
    lines = [
        ("documents", f"{members['documents']} of {DOCUMENT_BYTES} bytes, indexed in {members['build_s']} s"),
        *((f"{count} matches", f"{spent} µs of server CPU per query") for count, spent in cpu.items()),
        (
            f"pages of {PAGE}",
            f"{members['index_pages_per_s']}/s by index, {members['scan_pages_per_s']}/s by scan",
        ),
        ("index to scan", f"{members['index_to_scan']}"),
        (
            "update",
            f"{members['update_cpu_us_index_on']} µs with the index on, {members['update_cpu_us_index_off']} µs off: "
            f"{members['index_cost_of_update']}",
        ),
        (
            "large document",
            f"{members['query_cpu_us_beside_large_document']} µs per query of 1 match beside one of "
            f"{members['large_document_bytes']} bytes",
        ),
    ]
    return "\n".join(f"{name:<20}{value}" for name, value in lines)


class Plane:
    """One connection to a plane, one request after the other."""

    def __init__(self, server: Server, documents: int) -> None:
        address = urlsplit(server.url)
        self._server = server
        self._documents = documents
        self._connection = HTTPConnection(address.hostname or "", address.port, timeout=BUILD_S_MAX)
        self._number = 0

    def close(self) -> None:
        self._connection.close()

    def configure(self, namespace: str, preferred: str) -> None:
        body = {"query": {"preferred_engine": preferred, "fallback_engine": "scan"}}
        self._ask("/v1/namespace", body, namespace=namespace)

    def wait_for_index(self) -> float:
        """How long the server took to index what it found."""
        self.configure(INDEXED, "index")
        began_s = time.perf_counter()
        while time.perf_counter() - began_s < BUILD_S_MAX:
            if "index_phase" not in json.loads(self._ask("/v1/query", {"limit": 1})).get("metadata", {}):
                return time.perf_counter() - began_s
            time.sleep(0.2)
        raise BenchError(f"the index was not complete after {BUILD_S_MAX:.0f} s")

    def wait_for_summary(self) -> None:
        """Until the large document is indexed."""
        until_s = time.perf_counter() + SUMMARY_S_MAX
        while time.perf_counter() < until_s:
            self._connection.request("GET", "/metrics")
            told = self._connection.getresponse().read().decode()
            made = [line for line in told.splitlines() if line.startswith("holdfast_index_summaries")]
            if any(float(line.rpartition(" ")[2]) for line in made):
                return
            time.sleep(0.2)
        raise BenchError(f"the large document was not indexed after {SUMMARY_S_MAX:.0f} s")

    def measured(self, operation: Callable[[], None], seconds: float) -> tuple[float, float]:
        """Operations per second, and server CPU in seconds for each."""
        operation()
        began_s, cpu_s, count = time.perf_counter(), self._server.cpu_s() or 0.0, 0
        while (elapsed_s := time.perf_counter() - began_s) < seconds or not count:
            operation()
            count += 1
        return count / elapsed_s, ((self._server.cpu_s() or 0.0) - cpu_s) / count

    def keys(self, count: int) -> None:
        """A query of keys with so many matches."""
        selector = self._selector(count)
        found = json.loads(self._ask("/v1/query", {"selector": selector, "limit": 1000})).get("keys", ())
        if len(found) != count:
            raise BenchError(f"a query found {len(found)} keys instead of {count}")

    def page(self, engine: str) -> None:
        """A page of documents, of a selector that matches just as many."""
        selector = self._selector(PAGE)
        found = self._ask(
            "/v1/query", {"selector": selector, "limit": PAGE, "return": "documents"}, engine=engine
        )
        count = found.count(b"\n")
        if count != PAGE:
            raise BenchError(f"a page by {engine} has {count} documents instead of {PAGE}")

    def update(self, namespace: str) -> None:
        """Acquire, change two fields of a kilobyte, release."""
        self._number += 1
        self.publish(namespace, f"updated-{self._number % 20}", document(self._number % 20, self._number))

    def publish(self, namespace: str, key: str, text: bytes) -> None:
        asked = {"namespace": namespace, "key": key, "owner": "bench", "ttl_seconds": 60}
        lease = json.loads(self._ask("/v1/acquire", asked))
        claim = {
            "X-Lease-ID": lease["lease_id"],
            "X-Txn-ID": lease["txn_id"],
            "X-Fencing-Token": str(lease["fencing_token"]),
        }
        self._ask("/v1/update", text, claim, key=key, namespace=namespace)
        released = {
            "namespace": namespace,
            "key": key,
            "lease_id": lease["lease_id"],
            "txn_id": lease["txn_id"],
        }
        self._ask("/v1/release", released, claim)

    def _selector(self, count: int) -> dict[str, object]:
        """Another group each time."""
        self._number += 1
        group = self._number % (self._documents // count)
        return {"eq": {"field": f"/shared_by_{count}", "value": f"group-{group}"}}

    def _ask(self, path: str, body: object, headers: dict[str, str] | None = None, **query: str) -> bytes:
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        target = f"{path}?{urlencode(query)}" if query else path
        self._connection.request(
            "POST", target, sent, {"Content-Type": "application/json", **(headers or {})}
        )
        answer = self._connection.getresponse()
        told = answer.read()
        if answer.status != 200:
            raise BenchError(f"{path} was answered {answer.status}: {told[:500].decode(errors='replace')}")
        return told


def document(number: int, turn: int = 0) -> bytes:
    """A kilobyte. Each group of `shared_by_n` has n documents; two fields go with the turn."""
    members: dict[str, object] = {f"shared_by_{count}": f"group-{number // count}" for count in MATCHES}
    members |= {
        "id": f"order-{number:08d}",
        "status": ("open", "paid", "sent", "done")[turn % 4],
        "turn": 1_000_000 + turn,
        "total": number * 1.25,
        "created_at": "2026-01-31T10:00:00Z",
        "customer": {"name": f"Customer {number}", "city": "Lisbon", "is_known": True},
        "tags": ["bench", "order"],
    }
    text = json.dumps(members | {"note": ""}, separators=(",", ":"))
    return json.dumps(members | {"note": "x" * (DOCUMENT_BYTES - len(text))}, separators=(",", ":")).encode()


def large_document() -> bytes:
    """About 2 MB that no query of the benchmark matches."""
    rows = [
        {"id": f"row-{number:06d}", "total": number * 1.25, "note": "x" * 16} for number in range(LARGE_ROWS)
    ]
    return json.dumps({"rows": rows}, separators=(",", ":")).encode()


async def _fill(folder: Path, documents: int) -> None:
    """Documents without an index, spread over the order of keys, without going through a server."""
    async with open_disk(folder, StoreOptions()) as store:
        for first in range(0, documents, FILL_DOCUMENTS):
            numbers = range(first, min(first + FILL_DOCUMENTS, documents))

            def write(tx: Transaction, numbers: range = numbers) -> None:
                for number in numbers:
                    text = document(number)
                    content = Payload(inline=text, size_bytes=len(text))
                    etag = sha256(text).hexdigest()
                    record = Document(version=1, etag=etag, content=content, updated_at_s=1)
                    DOCUMENTS.put(tx, record, INDEXED, f"orders/{etag[:16]}")

            await store.transact(write)


def _us(cpu_s: float) -> float:
    return round(cpu_s * 1e6, 1)
