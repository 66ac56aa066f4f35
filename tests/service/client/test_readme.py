"""The Python of the SDK's README runs against a real plane."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.client.testing import TestServer

README = Path(__file__).parents[3] / "clients" / "python" / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README.read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_each_example_runs(number: int, tmp_path: Path) -> None:
    with TestServer("--qrf-disabled") as server:
        code = BLOCKS[number].replace("http://127.0.0.1:9341", server.url)
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert done.returncode == 0, done.stderr
