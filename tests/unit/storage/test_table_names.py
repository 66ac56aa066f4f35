"""The store knows no layer: the names of tables and of encryption classes stand in the modules that decision 15 names."""

import ast
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path

from holdfast.storage.codec.keyring import CLASSES
from tests.unit.test_tree import ROOT

STORAGE = ROOT / "libs/storage/src/holdfast/storage"
TABLE_MODULES = {"codec/encoded.py", "maintenance/transfer.py"}
CLASS_MODULES = {"codec/encoded.py", "codec/keyring.py", "maintenance/verify.py"}
OWN_TABLES = {"sys"}  # Its own records are there too: its identity, its clock, the samples of a verification.


def string_constants(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def tables_of_layers() -> set[str]:
    """The first argument of every `Table(…)` of a service, and the index, whose keys are made by hand."""
    calls = (
        node
        for module in ROOT.glob("services/*/src/**/*.py")
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Table"
    )
    names = {ast.literal_eval(call.args[0]) for call in calls}
    return (names | {"index"}) - OWN_TABLES


def modules_with(names: AbstractSet[str]) -> dict[str, set[str]]:
    """The modules of the store in which one of the names is a string of its own, and which."""
    found = {
        str(module.relative_to(STORAGE)): set(string_constants(module)) & names
        for module in STORAGE.rglob("*.py")
    }
    return {module: used for module, used in found.items() if used}


def test_layers_have_tables_to_look_for() -> None:
    assert {"lease", "doc", "msg", "txn", "lock"} <= tables_of_layers()


def test_tables_are_named_where_the_stored_format_needs_it() -> None:
    assert set(modules_with(tables_of_layers())) == TABLE_MODULES


def test_encryption_classes_are_named_where_the_stored_format_needs_it() -> None:
    # "object" is the class of any other context, and a word of URLs and JSON too.
    assert set(modules_with(CLASSES - {"object"})) == CLASS_MODULES
