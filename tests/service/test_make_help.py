"""What a bare `make` prints."""

import subprocess

from tests.unit.test_docs import MAKE, TARGETS
from tests.unit.test_tree import ROOT


def test_bare_make_prints_every_target() -> None:
    printed = subprocess.run(
        ["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert set(MAKE.findall(printed.stdout)) >= TARGETS
    assert {"serve", "test", "test-all", "lint", "types", "bench", "docs", "clean"} <= TARGETS
