"""Random documents, and random selectors about what is in them; the same for the same seed."""

import json
import random
from contextlib import suppress
from typing import Any, Final

from holdfast.lql.errors import InvalidSelector
from holdfast.lql.selector.json import selector_from_json

TEXTS: Final = (
    *("", "a", "ab", "abc", "A", "true", "null", "5", "05", "5.0", "1e3", "-0", "1_000", "inf", "é", "\ud800", "nul\0x"),
    *("2026-03-01", "2026-03-01T00:00:00Z", "2026-03-01T23:30:00-01:00", "2026-02-28T23:30:00+01:00", "2026-03-02T00:00:00.5"),
    *("x" * 64, "x" * 65, "x" * 80, "x" * 80 + "y", "é" * 40),
)  # fmt: skip
NUMBERS: Final = (
    *(
        "0",
        "-0",
        "5",
        "5.0",
        "-5",
        "1e3",
        "1000",
        "0.1",
        "1e400",
        "-1e400",
        "1e-400",
        "123456789012345678901234567890",
    ),
    *("9007199254740993", "9007199254740992", "0.30000000000000004", "3e-1"),
)
BOUNDS: Final = (
    0,
    5,
    -5,
    4.99,
    1000,
    0.1,
    0.3,
    9007199254740993,
    1e308,
    -1e308,
    123456789012345678901234567890,
)
MOMENTS: Final = ("2026-03-01", "2026-03-01T00:00:00Z", "2026-02-28T22:30:00Z", "2026-03-02T00:30:00")
NAMES: Final = ("a", "a", "a", "b", "b", "0", "x/y", "~", "", "é", "n" * 260)
KEYS: Final = tuple(f"k{number}" for number in range(6))
BOUND_NAMES: Final = ("gte", "gt", "lte", "lt")


class Spelled(str):
    """A number as it is to be spelled."""

    __slots__ = ()


def spell(value: Any) -> str:
    """JSON, with numbers as they are."""
    if isinstance(value, Spelled):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{spell(child)}" for name, child in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(spell, value)) + "]"
    return json.dumps(value)


class Cases:
    """A source of documents and selectors."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._seen: list[tuple[str, Any]] = [("/a", "a")]  # Pointers of documents, and what is there.

    def chance(self, probability: float) -> bool:
        return self._rng.random() < probability

    def choice(self, options: Any) -> Any:
        return self._rng.choice(options)

    def document(self) -> bytes:
        value = self._object(0) if self.chance(0.93) else self._value(0)
        if isinstance(value, dict):
            self._remember(value, "", 0)
        return spell(value).encode()

    def selector(self) -> dict[str, Any]:
        """One that the language takes: once in a million it has too many wildcards at first."""
        while True:
            drawn = self._branch(0)
            with suppress(InvalidSelector):
                selector_from_json(drawn)
                return drawn

    def _branch(self, depth: int) -> dict[str, Any]:
        kind = self._rng.random()
        if depth < 3 and kind < 0.35:
            parts = [self._branch(depth + 1) for _ in range(self._rng.randint(1, 3))]
            return {"and" if kind < 0.2 else "or": parts}
        if depth < 3 and kind < 0.42:
            return {"not": self._branch(depth + 1)}
        return self._term()

    def _term(self) -> dict[str, Any]:
        pointer, value = self.choice(self._seen)
        if self.chance(0.15):
            pointer = self._odd_pointer()
        text = self._text_about(value)
        name = self.choice(
            (
                "eq",
                "eq",
                "eq",
                "prefix",
                "iprefix",
                "contains",
                "icontains",
                "in",
                "range",
                "range",
                "date",
                "exists",
            )
        )
        members: dict[str, Any] = {"field": pointer}
        match name:
            case "exists":
                return {"exists": pointer}
            case "in":
                members["any"] = [text, self.choice(TEXTS)]
            case "range":
                bounds = MOMENTS if self.chance(0.3) else BOUNDS
                members |= {
                    self.choice(BOUND_NAMES): self.choice(bounds) for _ in range(self._rng.randint(1, 2))
                }
            case "date":
                members |= {self.choice(("value", "since", "after", "before")): self.choice(MOMENTS)}
            case "contains" if self.chance(0.3):
                pass
            case "icontains" if self.chance(0.3):
                members["any"] = [text[:2], self.choice(TEXTS)]
            case _:
                members["value"] = text if name == "eq" else text[: self._rng.randint(0, 70)]
        return {name: members}

    def _text_about(self, value: Any) -> str:
        if self.chance(0.3):
            return str(self.choice(TEXTS + NUMBERS))
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value) if isinstance(value, str) else ""

    def _odd_pointer(self) -> str:
        segments = ("a", "b", "0", "1", "+0", "00", "x~1y", "~0", "", "é", "*", "[]", "**", "...")
        return "/" + "/".join(self.choice(segments) for _ in range(self._rng.randint(1, 3)))

    def _object(self, depth: int) -> dict[str, Any]:
        return {self.choice(NAMES): self._value(depth + 1) for _ in range(self._rng.randint(0, 4))}

    def _value(self, depth: int) -> Any:
        kind = self._rng.random()
        if depth < 4 and kind < 0.2:
            return self._object(depth)
        if depth < 4 and kind < 0.35:
            return [self._value(depth + 1) for _ in range(self._rng.randint(0, 3))]
        return self.choice(
            (
                None,
                True,
                False,
                *(self.choice(TEXTS) for _ in range(5)),
                *(Spelled(self.choice(NUMBERS)) for _ in range(4)),
            )
        )

    def _remember(self, value: Any, pointer: str, depth: int) -> None:
        if pointer:
            self._seen.append((pointer, value))
        if isinstance(value, dict):
            for name, child in value.items():
                escaped = name.replace("~", "~0").replace("/", "~1")
                self._remember(child, f"{pointer}/{'*' if self.chance(0.05) else escaped}", depth + 1)
        elif isinstance(value, list):
            for place, child in enumerate(value):
                segment = self.choice(("[]", str(place), f"+{place}", f"0{place}", "**"))
                self._remember(child, f"{pointer}/{segment}", depth + 1)
