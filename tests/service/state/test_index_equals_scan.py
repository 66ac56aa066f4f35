"""The invariant of the index: every query finds what evaluating every document finds, whatever happened before."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.lql.document.value import parse_document
from holdfast.lql.selector.evaluation import matches
from holdfast.lql.selector.json import selector_from_json
from holdfast.storage.memory import open_memory
from holdfast.storage.options import StoreOptions
from holdfast.txn.layer.port import Decision
from tests.service.state.indexed_plane import IndexedPlane
from tests.service.state.query_cases import KEYS, Cases

SELECTORS_PER_HISTORY = 25
STEPS = (*["publish"] * 6, "hidden", "rollback", "remove", "hide", "show", "rebuild")


class Model:
    """What queries may find, kept in a plain dict."""

    def __init__(self) -> None:
        self.texts: dict[str, bytes] = {}
        self.hidden: set[str] = set()

    def __repr__(self) -> str:
        return f"{self.texts}, hidden: {self.hidden}"

    def apply(self, step: str, key: str, text: bytes) -> None:
        if step in ("publish", "hidden"):
            self.texts[key] = text
        if step == "remove":
            self.texts.pop(key, None)
        if step in ("hide", "hidden"):
            self.hidden.add(key)
        if step == "show":
            self.hidden.discard(key)

    def find(self, selector: Any, now_ns: int) -> list[str]:
        parsed = selector_from_json(selector)
        return sorted(
            key
            for key, text in self.texts.items()
            if key not in self.hidden and matches(parsed, parse_document(text), now_ns=now_ns)
        )


async def take(plane: IndexedPlane, step: str, key: str, text: bytes) -> None:
    match step:
        case "publish":
            await plane.publish(key, text)
        case "hidden":
            await plane.publish(key, text, is_hidden=True)
        case "rollback":
            await plane.publish(key, text, Decision.ROLLBACK)
        case "remove":
            await plane.remove(key)
        case "rebuild":
            await plane.configure("scan")
            await plane.builder.catch_up()
            await plane.turn_on()
        case _:
            await plane.hide(key, step == "hide")


async def check(seed: int) -> None:
    cases = Cases(seed)
    async with open_memory(StoreOptions()) as store:
        plane = IndexedPlane(store)
        await plane.turn_on()
        model = Model()
        for _ in range(cases.choice(range(1, 12))):
            step, key, text = cases.choice(STEPS), cases.choice(KEYS), cases.document()
            await take(plane, step, key, text)
            model.apply(step, key, text)
        for number in range(SELECTORS_PER_HISTORY):
            selector = cases.selector()
            expected = model.find(selector, int(plane.clock.now_s() * 1e9))
            assert await plane.keys(selector, limit=1 + number % 4) == expected, f"{selector} on {model}"
            if number % 5 == 0:
                assert await plane.documents(selector) == expected, f"{selector} on {model}"


seeds = given(seed=st.integers(0, 1 << 64))
unhurried = settings(deadline=None)


@settings(unhurried, max_examples=100)
@seeds
def test_thousands_of_queries_find_what_evaluation_finds(seed: int) -> None:
    asyncio.run(check(seed))


@pytest.mark.long
@settings(unhurried, max_examples=8000)
@seeds
def test_two_hundred_thousand_queries_find_what_evaluation_finds(seed: int) -> None:
    asyncio.run(check(seed))
