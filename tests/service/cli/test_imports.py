"""What the entry point of the command line imports, seen in a process of its own."""

import subprocess
import sys


def test_the_entry_point_imports_nothing_heavy() -> None:
    code = "import sys, holdfast.cli.main; print(*sys.modules)"

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    heavy = {"fastapi", "pydantic", "sqlalchemy", "rocksdict", "uvicorn", "cryptography", "asyncio"}
    assert heavy & set(loaded.split()) == set()
