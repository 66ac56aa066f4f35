"""A real file system without room: a clear error, reads go on, and so do writes once there is room."""

from pathlib import Path

import pytest

from tests.infra.small_disk import can_mount, run_on_small_disk


@pytest.mark.skipif(
    not can_mount(),
    reason="no right to mount a file system; test_disk_faults.py shows the same on a simulated device",
)
def test_a_small_disk_that_fills_up_is_survived(tmp_path: Path) -> None:
    process = run_on_small_disk("tests.system.disk.full_session", tmp_path, size="64m")

    assert process.returncode == 0, process.stderr
    assert process.stdout == "recovered\n"
