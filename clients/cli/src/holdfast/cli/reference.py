"""Writes the tables of docs/reference from the code: `python -m holdfast.cli.reference [ROOT]`."""

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path

from pydantic.fields import FieldInfo

from holdfast.common.errors import HoldfastError, error_classes
from holdfast.common.settings import PlaneSettings
from holdfast.common.settings.display import choices_of, default_shown, kind_of
from holdfast.common.settings.flag import flag_of

BEGIN = "<!-- table: written by `make docs`, not by hand -->"
END = "<!-- end of table -->"
_UNITS = ("common", "lql", "storage", "leases", "state", "queue", "txn", "gateway", "client", "cli")


def errors_table() -> str:
    """Every error a client may be told, by code."""
    for unit in _UNITS:
        _import_all(f"holdfast.{unit}")
    ours = [error for error in error_classes() if error.__module__.startswith("holdfast.")]
    rows = [
        f"| `{error.code}` | {error.status} | `{error.__name__}` | {_owner(error)} | {_first_line(error)} |"
        for error in sorted(ours, key=lambda error: (error.code, error.__name__))
    ]
    return "\n".join(["| code | status | class | unit | meaning |", "|---|---|---|---|---|", *rows])


def _import_all(package: str) -> None:
    """An error may stand beside what raises it, so the table must not depend on what happens to be imported."""
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        if not module.name.endswith(".__main__"):
            importlib.import_module(module.name)


def _owner(error: type[HoldfastError]) -> str:
    return error.__module__.split(".")[1]


def _first_line(error: type[HoldfastError]) -> str:
    return _cell((error.__doc__ or "").strip().splitlines()[0])


def settings_table() -> str:
    """Every setting, by group."""
    groups: dict[str, list[str]] = {}
    for info in PlaneSettings.model_fields.values():
        groups.setdefault(flag_of(info).group, []).append(_settings_row(info))
    return "\n\n".join("\n".join(_group_lines(group, rows)) for group, rows in groups.items())


def _group_lines(group: str, rows: list[str]) -> Iterator[str]:
    yield f"## {group.capitalize()}\n"
    yield "| setting | value | default | meaning |"
    yield "|---|---|---|---|"
    yield from rows


def _settings_row(info: FieldInfo) -> str:
    flag = flag_of(info)
    name = f"`--{flag.name}`" if flag.on_command_line else f"`{flag.env_names('')[1]}`"
    if flag.short:
        name += f", `-{flag.short}`"
    if flag.key != flag.name:
        name += f" (key `{flag.key}`)"
    notes = "".join(
        [
            " Environment only." if not flag.on_command_line else "",
            f" Also read from {', '.join(f'`{env}`' for env in flag.env_extra)}." if flag.env_extra else "",
            flag.note,
        ]
    )
    value = ", ".join(choices_of(info)) or kind_of(info)
    default = default_shown(info)
    return f"| {name} | {_cell(value)} | {f'`{_cell(default)}`' if default else ''} | {_cell(info.description or '')}{notes} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def with_table(page: str, table: str) -> str:
    """The page with what stands between its two marks replaced."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks {BEGIN!r} or {END!r}")
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


def pages(root: Path) -> dict[Path, str]:
    """Each page of the reference that holds a table, as it should read."""
    reference = root / "docs" / "reference"
    tables = {"errors.md": errors_table(), "settings.md": settings_table()}
    return {
        reference / name: with_table((reference / name).read_text("utf-8"), table)
        for name, table in tables.items()
    }


def main() -> None:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd()
    for path, text in pages(root).items():
        path.write_text(text, "utf-8")
        sys.stdout.write(f"wrote {path}\n")


if __name__ == "__main__":
    main()
