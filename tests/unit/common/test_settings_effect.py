"""Every setting does something, or says that it does not."""

import re
from collections.abc import Iterator
from pathlib import Path

from holdfast.common.settings.plane import PlaneSettings

ROOT = Path(__file__).parents[3]
CHECKS = ROOT / "libs/common/src/holdfast/common/settings/check.py"
"""Refuses what makes no sense, whether it has an effect or not."""


def read_anywhere() -> Iterator[str]:
    """The names of all attributes that the program reads."""
    for folder in ("services", "libs", "clients"):
        for path in (ROOT / folder).rglob("*.py"):
            if path != CHECKS:
                yield from re.findall(r"\.([a-z][a-z0-9_]*)", path.read_text("utf-8"))


def test_a_setting_that_nobody_reads_says_that_it_is_without_effect() -> None:
    read = set(read_anywhere())
    by_written_name = {"bootstrap", *(name for name in PlaneSettings.flags() if name.startswith("peer_"))}

    silent = {
        name
        for name, flag in PlaneSettings.flags().items()
        if not flag.is_ignored and name not in read | by_written_name
    }

    assert silent == set()
