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


def functions_of_a_transaction(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(
            argument.annotation is not None and ast.unparse(argument.annotation) == "Transaction"
            for argument in node.args.args
        ):
            yield node


def called(node: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for call in ast.walk(node):
        if isinstance(call, ast.Call):
            yield ast.unparse(call.func).rpartition(".")[2], call


def problems(source: str) -> list[str]:
    """Where a function of a transaction mints an id, or keeps the time instead of handing it to a rule."""
    found: list[str] = []
    for function in functions_of_a_transaction(ast.parse(source)):
        handed = {id(argument) for _, call in called(function) for argument in call.args}
        for name, call in called(function):
            if name in MINTS or (name in CLOCKS and id(call) not in handed):
                found.append(f"{function.name}: {ast.unparse(call)}")
    return found


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: str(path.relative_to(FOLDER)))
def test_a_function_of_a_transaction_mints_nothing_and_keeps_no_time(path: Path) -> None:
    assert problems(path.read_text()) == []


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


@pytest.mark.parametrize(
    "line",
    ["message_id = uuid7()", "now_ms = self._clock.now_ms()", "rules.claim(tx, new_xid())"],
)
def test_a_function_that_is_not_plain_is_noticed(line: str) -> None:
    assert problems(f"def claim(tx: Transaction) -> None:\n    {line}\n")
    assert not problems("def claim(tx: Transaction) -> None:\n    rules.claim(tx, self._clock.now_ms())\n")
