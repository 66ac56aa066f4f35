"""The arguments and options that commands of `holdfast kv` share, and how they are read."""

from enum import StrEnum
from typing import Annotated

import typer

from holdfast.cli.output import failure
from holdfast.client.kv.operation import Order, SortTarget

Key = Annotated[str, typer.Argument(metavar="KEY", help="Which key, or where a range begins.")]
RangeEnd = Annotated[
    str, typer.Argument(metavar="[RANGE_END]", help="All keys from KEY on that are less than this.")
]
Prefix = Annotated[bool, typer.Option("--prefix", help="All keys that begin so.")]
FromKey = Annotated[bool, typer.Option("--from-key", help="All keys from this one on.")]
PrevKv = Annotated[bool, typer.Option("--prev-kv", help="Print what was there before, too.")]


class OrderOption(StrEnum):
    ASCEND = "ASCEND"
    DESCEND = "DESCEND"

    @property
    def order(self) -> Order:
        return "ASCEND" if self is OrderOption.ASCEND else "DESCEND"


class SortOption(StrEnum):
    CREATE = "CREATE"
    KEY = "KEY"
    MODIFY = "MODIFY"
    VALUE = "VALUE"
    VERSION = "VERSION"

    @property
    def target(self) -> SortTarget:
        targets: dict[SortOption, SortTarget] = {
            SortOption.CREATE: "CREATE",
            SortOption.KEY: "KEY",
            SortOption.MODIFY: "MOD",
            SortOption.VALUE: "VALUE",
            SortOption.VERSION: "VERSION",
        }
        return targets[self]


def lease_id(text: str) -> int:
    """A lease as it is printed, in hexadecimal digits; ends the program if it is none."""
    try:
        number = int(text, 16)
    except ValueError:
        number = 0
    if not 0 < number < 2**63:
        raise failure(f"{text!r} is no lease: expected hexadecimal digits, as `lease grant` prints them", 2)
    return number


def lease_name(number: int) -> str:
    return f"{number:016x}"
