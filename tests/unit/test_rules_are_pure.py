"""What `store.transact` may run twice gets its time and its ids from its caller: no layer takes them inside of it.

A function with a parameter of type `Transaction` is one of those, and so is all that it calls of its own module.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.test_tree import ROOT

LAYERS = sorted(ROOT.glob("services/*/src/holdfast/*/layer"))
TAKEN = {"now_ms", "new_xid", "uuid7", "uuid4", "monotonic", "time_ns", "uniform", "random", "token_hex"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions_of(tree: ast.AST, outer: str = "") -> Iterator[tuple[str, Function]]:
    """Every function with its qualified name."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function):
            yield outer + node.name, node
        inner = f"{outer}{node.name}." if isinstance(node, Function | ast.ClassDef) else outer
        yield from functions_of(node, inner)


def is_rerun(function: Function) -> bool:
    arguments = function.args
    parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return any(
        one.annotation is not None and ast.unparse(one.annotation) == "Transaction" for one in parameters
    )


def called_by(function: Function) -> set[str]:
    """The names that a function calls, without what objects they are called on."""
    calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    attributes = {func.attr for func in calls if isinstance(func, ast.Attribute) and _is_own(func)}
    return attributes | {func.id for func in calls if isinstance(func, ast.Name)}


def _is_own(func: ast.Attribute) -> bool:
    """A method of the same object, or of something that tells time or makes ids."""
    return ast.unparse(func.value) == "self" or func.attr in TAKEN


def offenders(source: str) -> set[str]:
    """The functions that may run twice and take a time or an id, by themselves or by what they call of their module."""
    functions = dict(functions_of(ast.parse(source)))
    calls: dict[str, set[str]] = {}
    for name, function in functions.items():
        calls.setdefault(name.rpartition(".")[2], set()).update(called_by(function))
    return {
        name
        for name, function in functions.items()
        if is_rerun(function) and _reaches(called_by(function), calls)
    }


def _reaches(called: set[str], calls: dict[str, set[str]]) -> bool:
    seen: set[str] = set()
    while called - seen:
        name = (called - seen).pop()
        if name in TAKEN:
            return True
        seen.add(name)
        called = called | calls.get(name, set())
    return False


def found_in(layer: Path) -> dict[str, set[str]]:
    """The offenders of each module."""
    sources = {path: path.read_text("utf-8") for path in sorted(layer.rglob("*.py"))}
    return {
        path.as_posix().partition("/src/holdfast/")[2]: names
        for path, source in sources.items()
        if (names := offenders(source))
    }


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.parent.name)
def test_time_and_ids_are_given_to_what_may_run_twice(layer: Path) -> None:
    assert found_in(layer) == {}


@pytest.mark.parametrize("line", ["message_id = uuid7()", "rules.claim(tx, self._clock.now_ms())", "_mint()"])
def test_a_function_that_takes_them_itself_is_noticed(line: str) -> None:
    source = (
        f"def claim(tx: Transaction) -> None:\n    {line}\n\n\ndef _mint() -> str:\n    return new_xid()\n"
    )

    assert offenders(source) == {"claim"}
    assert not offenders("def claim(tx: Transaction, now_ms: int) -> None:\n    rules.claim(tx, now_ms)\n")
