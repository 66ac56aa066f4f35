"""A server process keeps the memory that pieces of bodies were in."""

import subprocess
import sys

import pytest

_PAGE_FAULTS = """
import resource, sys
from holdfast.common.serving.process import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for size in (1 << 20, 1 << 18):
    b"x" * size + b"y"
before = faults()
for _ in range(100):
    b"x" * (1 << 20) + b"y" * (1 << 20)
print(faults() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux's allocator")
def test_memory_of_pieces_is_not_asked_of_the_kernel_again_and_again() -> None:
    """Each of the pieces below has 256 pages."""
    command = [sys.executable, "-c", _PAGE_FAULTS, "kept"]
    faults = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    assert faults < 10_000
