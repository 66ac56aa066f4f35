"""The generator of the blocking client: what becomes of asynchronous source, and that `sync/` is what it makes."""

from textwrap import dedent

import pytest

from clients.python.generate_sync import (
    BY_HAND,
    PACKAGE,
    PHRASES,
    blocking,
    sources,
)


@pytest.mark.parametrize(
    ("asynchronous", "expected"),
    [
        ("async def get(self) -> bytes: ...", "def get(self) -> bytes: ..."),
        ("found = await self.get(await key())", "found = self.get(key())"),
        ("async with a as b, c: pass", "with a as b, c: pass"),
        ("async for row in rows: pass", "for row in rows: pass"),
        ("chunk = await anext(chunks, None)", "chunk = next(chunks, None)"),
        ("rows = [row async for row in aiter(found)]", "rows = [row for row in iter(found)]"),
        ("async def __aenter__(self) -> Self: ...", "def __enter__(self) -> Self: ..."),
        ("await one.__aexit__(None, None, None)", "one.__exit__(None, None, None)"),
        ("def __aiter__(self) -> AsyncIterator[T]: ...", "def __iter__(self) -> Iterator[T]: ..."),
        ("except StopAsyncIteration: pass", "except StopIteration: pass"),
        ("chunks: AsyncIterable[bytes] | None", "chunks: Iterable[bytes] | None"),
        ("client = httpx.AsyncClient()", "client = httpx.Client()"),
        ("stack = AbstractAsyncContextManager", "stack = AbstractContextManager"),
        ("await response.aclose()", "response.close()"),
        ("@asynccontextmanager", "@contextmanager"),
        (
            "from holdfast.client.aio.queue.queue import Queue",
            "from holdfast.client.sync.queue.queue import Queue",
        ),
        ("is_async = asynchronous", "is_async = asynchronous"),
        ("line = '\u2028\x0c'\nawait wait()", "line = '\u2028\x0c'\nwait()"),
    ],
)
def test_a_line_is_translated(asynchronous: str, expected: str) -> None:
    assert blocking(asynchronous + "\n") == expected + "\n"


@pytest.mark.parametrize(
    ("asynchronous", "expected"),
    [
        ("Callable[[], Awaitable[None]]", "Callable[[], None]"),
        ("Callable[[A], Awaitable[dict[str, T]]]", "Callable[[A], dict[str, T]]"),
        ("Callable[[], Coroutine[Any, Any, Session]]", "Callable[[], Session]"),
        ("Pending[Session] | None", "Session | None"),
        ("AsyncGenerator[tuple[int, str], None]", "Generator[tuple[int, str], None, None]"),
        ("isinstance(x, Awaitable)", "isinstance(x, Awaitable)"),
    ],
)
def test_a_type_is_what_a_blocking_call_returns(asynchronous: str, expected: str) -> None:
    assert blocking(f"kind = {asynchronous}\n") == f"kind = {expected}\n"


def test_docstrings_comments_and_messages_speak_of_the_blocking_client() -> None:
    source = '''
        class AsyncClient:
            """`async with AsyncClient(url) as client`. Belongs to one event loop.

            `await client.get(key)`; several tasks.
            """  # Another task may `async for row in rows`, if it awaits them.

            name = f"{await AsyncClient.name()} of this task, a multitasker"
    '''
    expected = '''
        class Client:
            """`with Client(url) as client`. Threads may share it.

            `client.get(key)`; several threads.
            """  # Another thread may `for row in rows`, if it awaits them.

            name = f"{Client.name()} of this thread, a multitasker"
    '''

    assert blocking(dedent(source)) == dedent(expected)


def test_all_else_stays_as_it_is_written() -> None:
    source = 'x = {  \'ä\': 1,\n\n\n  # é\n \'async\': (2)}   ;  y = """\n  await\n"""\n'

    assert blocking(source) == source


def test_every_blocking_module_is_generated_or_written_by_hand_on_both_sides() -> None:
    aio, sync = (
        {path.relative_to(PACKAGE / side).as_posix() for path in (PACKAGE / side).rglob("*.py")}
        for side in ("aio", "sync")
    )

    assert aio == sync
    assert aio >= BY_HAND
    assert not [name for name in BY_HAND if "Generated" in (PACKAGE / "sync" / name).read_text("utf-8")]


@pytest.mark.parametrize("phrase", PHRASES)
def test_every_phrase_is_in_use(phrase: str) -> None:
    assert any(phrase in source.read_text(encoding="utf-8") for source in sources())
