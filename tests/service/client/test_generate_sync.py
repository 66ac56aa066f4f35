"""The blocking client in the tree is what the generator makes, formatted by the programs of the tree."""

import ast
import importlib
from functools import cache
from pathlib import Path
from textwrap import dedent

import pytest

from clients.python import generate_sync
from clients.python.generate_sync import (
    BY_HAND,
    PACKAGE,
    blocking,
    formatted,
    sources,
    twin,
)

generated = cache(generate_sync.generated)  # Each starts two programs.


def test_what_is_made_is_formatted_and_imports_what_it_needs() -> None:
    source = """
        import zlib
        from collections.abc import Awaitable, AsyncIterator
        from holdfast.client.aio.concurrency import Pending, pending
        from holdfast.client.a import A

        def start(work: Awaitable[A]) -> Pending[A]:
            return pending(lambda: zlib.crc32(  work  ))

        async def rows(found: list[A]) -> AsyncIterator[A]:
            async with found:
                async with await lock():
                    for row in found:
                        yield row
    """
    expected = """\
        import zlib
        from collections.abc import Iterator

        from holdfast.client.a import A
        from holdfast.client.sync.concurrency import pending


        def start(work: A) -> A:
            return pending(lambda: zlib.crc32(work))


        def rows(found: list[A]) -> Iterator[A]:
            with found, lock():
                yield from found
    """

    assert formatted(blocking(dedent(source)), PACKAGE / "sync" / "rows.py") == dedent(expected)


@pytest.mark.parametrize("source", sources(), ids=lambda path: str(path.relative_to(PACKAGE / "aio")))
def test_a_module_is_what_the_generator_makes(source: Path) -> None:
    made = generated(source)

    assert twin(source).read_text(encoding="utf-8") == made
    assert made.startswith(f"# Generated from {source.relative_to(PACKAGE)} ")
    names = {node.id for node in ast.walk(ast.parse(made)) if isinstance(node, ast.Name)}
    assert not [name for name in names if "async" in name.lower()]


@pytest.mark.parametrize("name", sorted(BY_HAND - {"__init__.py"}))
def test_what_is_written_by_hand_has_the_names_that_generated_code_uses(name: str) -> None:
    used: set[str] = set()
    imported = ".".join(("holdfast.client.sync", *Path(name).with_suffix("").parts))
    for path in sources():
        for node in ast.walk(ast.parse(generated(path))):
            if isinstance(node, ast.ImportFrom) and node.module == imported:
                used |= {alias.name for alias in node.names}

    module = importlib.import_module(imported)

    assert used
    assert not [one for one in used if not hasattr(module, one)]


def test_a_check_tells_what_is_not_current_and_a_run_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "aio" / "queue").mkdir(parents=True)
    (tmp_path / "sync").mkdir()
    (tmp_path / "aio" / "queue" / "live.py").write_text("async def get() -> None: ...\n")
    (tmp_path / "aio" / "pool.py").write_text("async def never() -> None: ...\n")
    monkeypatch.setattr(generate_sync, "PACKAGE", tmp_path)

    before = generate_sync.main(["--check"])
    told = capsys.readouterr().out
    wrote = generate_sync.main([])
    after = generate_sync.main(["--check"])

    assert (before, wrote, after) == (1, 0, 0)
    assert "+def get() -> None: ...\n" in told
    assert "live.py is not what aio/queue/live.py makes: run make sync-client" in told
    assert [path.name for path in (tmp_path / "sync").rglob("*.py")] == ["live.py"]
