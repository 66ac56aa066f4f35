"""Keys and values as they stand in JSON."""

import base64
import json
from typing import Any


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def result(revision: int, **members: Any) -> bytes:
    """A message of a watch."""
    header = {"cluster_id": "18446744073709551615", "revision": str(revision)}
    return json.dumps({"result": {"header": header, **members}}).encode() + b"\n"


def put(key: str, revision: int) -> dict[str, Any]:
    return {"kv": {"key": b64(key), "create_revision": "2", "mod_revision": str(revision), "version": "1"}}
