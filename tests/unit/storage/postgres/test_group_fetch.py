"""Group fetch without a database: which statements are sent for what callers miss."""

import asyncio

import pytest

from holdfast.storage.errors import StoreUnavailable
from holdfast.storage.port import Record
from holdfast.storage.postgres.connection import Row
from holdfast.storage.postgres.group_fetch import STATEMENT_KEYS_MAX, STATEMENTS_MAX, GroupFetcher

REVISION = 7


class Database:
    """Answers a statement when it is let; `a…` keys exist."""

    def __init__(self) -> None:
        self.statements: list[list[bytes]] = []
        self.may_answer = asyncio.Event()
        self.error: StoreUnavailable | None = None

    async def rows(self, query: str, keys: list[bytes]) -> list[Row]:
        self.statements.append(keys)
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        found = [(REVISION, key, b"", 1, 2, 3) for key in keys if key.startswith(b"a")]
        return [*found] or [(REVISION, None, None, None, None, None)]


async def begun(fetcher: GroupFetcher, *groups: list[bytes]) -> list["asyncio.Task[object]"]:
    """Each in a turn of its own."""
    tasks: list[asyncio.Task[object]] = []
    for keys in groups:
        tasks.append(asyncio.create_task(fetcher.fetch(keys)))
        for _ in range(3):
            await asyncio.sleep(0)
    return tasks


async def test_what_is_asked_for_meanwhile_is_read_by_one_statement_and_each_gets_its_own() -> None:
    database = Database()
    fetcher = GroupFetcher(database.rows)
    tasks = await begun(fetcher, [b"a1"], [b"a2"], [b"a3", b"b"], [b"a3"], [b"b"])

    database.may_answer.set()
    answers = await asyncio.gather(*tasks)

    assert database.statements == [[b"a1"], [b"a2"], [b"a3", b"b"]]
    three = Record(b"a3", b"", 1, 2, 3)
    assert answers[2:] == [
        ({b"a3": three, b"b": None}, REVISION),
        ({b"a3": three}, REVISION),
        ({b"b": None}, REVISION),
    ]


async def test_the_keys_of_one_caller_are_never_divided() -> None:
    database = Database()
    fetcher = GroupFetcher(database.rows)
    many = [[b"%d-%d" % (caller, key) for key in range(STATEMENT_KEYS_MAX - 1)] for caller in range(4)]
    tasks = await begun(fetcher, *many)

    database.may_answer.set()
    await asyncio.gather(*tasks)

    assert database.statements == many


async def test_a_caller_that_has_gone_is_not_read_for_and_holds_up_no_other() -> None:
    database = Database()
    fetcher = GroupFetcher(database.rows)
    tasks = await begun(fetcher, *[[b"a%d" % number] for number in range(STATEMENTS_MAX + 2)])
    tasks[0].cancel()
    tasks[STATEMENTS_MAX].cancel()

    database.may_answer.set()
    answers = await asyncio.gather(*tasks, return_exceptions=True)

    assert [isinstance(answer, asyncio.CancelledError) for answer in answers] == [True, False, True, False]
    assert database.statements == [[b"a0"], [b"a1"], [b"a3"]]


async def test_an_error_is_told_to_each_caller_and_the_next_one_asks_again() -> None:
    database = Database()
    fetcher = GroupFetcher(database.rows)
    database.error = StoreUnavailable("away", retry_after_s=1.0)
    tasks = await begun(fetcher, [b"a1"], [b"a2"], [b"a3"], [b"a4"])
    database.may_answer.set()
    errors = await asyncio.gather(*tasks, return_exceptions=True)
    database.error = None

    with pytest.raises(StoreUnavailable):
        raise errors[0]  # type: ignore[misc]
    assert len({id(error) for error in errors}) == 4
    assert (await fetcher.fetch([b"b"])).records == {b"b": None}


async def test_what_is_asked_for_while_the_last_statements_end_is_read_too() -> None:
    database = Database()
    fetcher = GroupFetcher(database.rows)
    tasks = await begun(fetcher, *[[b"a%d" % number] for number in range(STATEMENTS_MAX)])
    database.may_answer.set()

    for number in range(20):
        tasks.append(asyncio.create_task(fetcher.fetch([b"b%d" % number])))
        await asyncio.sleep(0)

    async with asyncio.timeout(5):
        await asyncio.gather(*tasks)


async def test_what_is_asked_for_by_the_answer_of_another_fetch_is_read_too() -> None:
    database = Database()
    fetcher = GroupFetcher(database.rows)
    database.may_answer.set()

    async def ask_again(name: bytes) -> None:
        for number in range(20):
            await fetcher.fetch([name + b"%d" % number])

    async with asyncio.timeout(5):
        await asyncio.gather(*(ask_again(name) for name in (b"a", b"b", b"c")))
