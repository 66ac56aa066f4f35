"""The rules of the queue are plain functions: they mint nothing, and the time is given to them."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.queue import layer

FOLDER = Path(layer.__file__).parent
MINTS = {"new_xid", "uuid7", "uuid4", "token_hex"}
CLOCKS = {"now_ms", "wall_s", "monotonic_s", "time", "monotonic"}
RULES = [
    "delivery/enlistment.py",
    "delivery/freeing.py",
    "delivery/rules.py",
    "delivery/transaction_binding.py",
    "message/changes.py",
    "message/records.py",
    "message/rules.py",
    "message/staging.py",
]


def called(node: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for call in ast.walk(node):
        if isinstance(call, ast.Call):
            yield ast.unparse(call.func).rpartition(".")[2], call


@pytest.mark.parametrize("name", RULES)
def test_a_module_of_rules_knows_no_clock_and_waits_for_nothing(name: str) -> None:
    tree = ast.parse((FOLDER / name).read_text())
    names = {name for name, _ in called(tree)}
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom | ast.Import)
        for alias in node.names
    }

    assert not names & (MINTS | CLOCKS)
    assert not imported & (MINTS | {"SteadyClock", "asyncio", "time", "random"})
    assert not any(isinstance(node, ast.Await | ast.AsyncFunctionDef) for node in ast.walk(tree))
