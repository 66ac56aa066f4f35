"""Every setting does something, or says that it does not."""

import re
from collections.abc import Iterator
from pathlib import Path

from holdfast.cli.options import _help
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


def test_a_setting_that_says_it_is_without_effect_is_read_by_nobody() -> None:
    read = set(read_anywhere())

    effective = {name for name, flag in PlaneSettings.flags().items() if flag.is_ignored and name in read}

    assert effective == set()


def test_help_says_which_settings_are_without_effect() -> None:
    ignored = {name for name, flag in PlaneSettings.flags().items() if flag.is_ignored}

    said = {name for name, info in PlaneSettings.model_fields.items() if "without effect" in _help(info)}

    assert said == ignored
