"""`holdfast kv` in this process or in one of its own, and keys to look at."""

import json
import sys

from typer.testing import CliRunner, Result

from holdfast.cli.main import app
from holdfast.client import Client

PROGRAM = [sys.executable, "-c", "from holdfast.cli.main import app; app()", "kv"]
NO_LEASE = "0000000000000abc"


def kv(*arguments: str, given: str | bytes | None = None) -> Result:
    return CliRunner().invoke(app, ["kv", *arguments], input=given)


def kv_json(*arguments: str) -> dict[str, object]:
    members: dict[str, object] = json.loads(kv(*arguments, "--output", "json").stdout)
    return members


def filled(client: Client) -> int:
    """Three keys, the last one put first, and the revision before."""
    revision = client.kv.get("a").revision
    for key, value in (("k/c", "3"), ("k/a", "1"), ("k/b", "2")):
        client.kv.put(key, value)
    return revision


def value_of(client: Client, key: str) -> bytes | None:
    found = client.kv.get(key).first
    return found.value if found else None
