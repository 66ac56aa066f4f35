"""The descriptors 0, 1 and 2 of a process that may have been started without some of them."""

import os
import sys
from pathlib import Path
from typing import Final, TextIO

_STANDARD: Final = (0, 1, 2)


def open_standard_descriptors() -> None:
    """Open what is closed on /dev/null: the next file would take its number, and be read or written as a stream is.

    Python has None in the place of a stream that was closed. Errors then go nowhere; input and output stay None, so that
    a caller that needs them can tell.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) in _STANDARD:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    errors: TextIO | None = sys.stderr
    if errors is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - as long as the process lives
