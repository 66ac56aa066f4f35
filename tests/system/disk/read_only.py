"""A store on a file system that was mounted read-only: the message says so, and what to do."""

import subprocess
import sys
from pathlib import Path

from tests.system.cli import holdfast


def main(folder: Path) -> None:
    home = folder.with_name("home")
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)

    refused = holdfast(
        home, "serve", "--disable-mtls", "--listen", "127.0.0.1:0", "--store", f"disk://{folder}/store"
    )

    assert refused.returncode != 0
    assert "Traceback" not in refused.stderr, refused.stderr
    assert "Read-only file system; mount the file system for writing" in refused.stderr, refused.stderr
    assert "(storage_read_only)" in refused.stderr, refused.stderr
    sys.stdout.write("named\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
