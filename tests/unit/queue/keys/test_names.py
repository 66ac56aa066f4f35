"""The names of queue keys: every spelling, what each key means, and that what is asked for comes back as it was asked for."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.queue.layer.keys import names
from holdfast.queue.layer.keys.names import Kind, QueueKey
from holdfast.state.layer.kv.operation import UNBOUNDED

IDX = b"00000000000000000001"

roots = st.sampled_from([b"queue", b"q"])
segments = st.binary(min_size=1, max_size=4).filter(lambda part: b"/" not in part)
rests = st.binary(max_size=8)
words = st.sampled_from([b"producer", b"p", b"input", b"i", b"consumer", b"c"])
thirds = words | st.sampled_from([b"config", IDX, b"7", b"other", b"con", b"pro"]) | segments


@pytest.mark.parametrize("root", ["queue", "q"])
@pytest.mark.parametrize("third", ["producer", "p", "input", "i"])
def test_all_spellings_of_a_producer_key_are_one_key(root: str, third: str) -> None:
    key = f"/{root}/x/{third}/me/a/b".encode()

    assert names.stored_key(key) == b"/queue/x/producer/me/a/b"
    assert names.parsed(names.stored_key(key)) == QueueKey(Kind.INCOMING, b"x", b"me", name=b"a/b")


@pytest.mark.parametrize("root", ["queue", "q"])
@pytest.mark.parametrize("third", ["consumer", "c"])
@pytest.mark.parametrize("end", ["", "/"])
def test_all_spellings_of_a_consumer_are_one_key(root: str, third: str, end: str) -> None:
    key = f"/{root}/x/{third}/A{end}".encode()

    assert names.stored_key(key) == b"/queue/x/consumer/A/"
    assert names.parsed(names.stored_key(key)) == QueueKey(Kind.CONSUMER, b"x", b"A")


@pytest.mark.parametrize(
    ("key", "meaning"),
    [
        (b"/queue/x", QueueKey(Kind.QUEUE, b"x")),
        (b"/queue/x/config", QueueKey(Kind.CONFIG, b"x")),
        (b"/queue/x/config/deeper", QueueKey(Kind.CONFIG, b"x")),
        (b"/queue/x/%b/m" % IDX, QueueKey(Kind.MESSAGE, b"x", idx=1, name=b"m")),
        (b"/queue/x/7/m", QueueKey(Kind.MESSAGE, b"x", idx=7, name=b"m")),
        (b"/queue/x/7", QueueKey(Kind.MESSAGE, b"x", idx=7)),
        (b"/queue/x/%b/m" % (b"9" * 40), QueueKey(Kind.MESSAGE, b"x", idx=10**20 - 1, name=b"m")),
        (b"/queue/x/producer/m", QueueKey(Kind.INCOMING, b"x", name=b"m")),
        (b"/queue/x/producer/me//", QueueKey(Kind.INCOMING, b"x", b"me", name=b"/")),
        (b"/queue/x/consumer/A/%b/m/n" % IDX, QueueKey(Kind.DELIVERY, b"x", b"A", 1, b"m/n")),
        (b"/queue/\xff\0/consumer/\0/", QueueKey(Kind.CONSUMER, b"\xff\0", b"\0")),
        (
            b"/queue/producer/producer/producer/m",
            QueueKey(Kind.INCOMING, b"producer", b"producer", name=b"m"),
        ),
    ],
)
def test_what_a_key_means(key: bytes, meaning: QueueKey) -> None:
    assert names.parsed(key) == meaning


@pytest.mark.parametrize(
    "key",
    [
        b"/queue/x/producer",
        b"/queue/x/producer/",
        b"/queue/x/producer/me/",
        b"/queue/x/producer//m",
        b"/queue/x/producer//",
        b"/queue/x/consumer",
        b"/queue/x/consumer/",
        b"/queue/x/consumer//1/m",
    ],
)
def test_a_message_and_a_client_have_a_name(key: bytes) -> None:
    found = names.parsed(key)

    assert found is not None
    assert found.kind is Kind.NAMELESS


@pytest.mark.parametrize(
    "key",
    [
        b"",
        b"/",
        b"/q",
        b"/queue",
        b"/queue/",
        b"/queue//",
        b"/queue//producer/me/m",
        b"/queue/x/",
        b"/queue/x/other",
        b"/queue/x//m",
        b"/queue/x/-1/m",
        b"/queue/x/ 1/m",
        b"/queue/x/Producer/m",
        b"/queues/x/producer/m",
        b"/Queue/x",
        b"queue/x/producer/m",
        b"/quack/x/p/m",
    ],
)
def test_everything_else_is_a_plain_key(key: bytes) -> None:
    assert names.parsed(names.stored_key(key)) is None


@pytest.mark.parametrize(
    "key", [b"/q", b"/queue", b"/quack/x/p/m", b"/q1/x", b"\0", b"", b"/Q/x", b"q/x/p/m", b"/queu/x"]
)
def test_what_is_outside_of_the_roots_is_not_translated(key: bytes) -> None:
    assert names.stored_key(key) == key
    assert not names.is_queue_key(key)


def test_the_short_root_without_a_queue_is_the_long_one_without_a_queue() -> None:
    assert names.stored_key(b"/q/") == b"/queue/"
    assert names.stored_key(b"/q//p/m") == b"/queue//p/m"


@given(root=roots, queue=segments, third=thirds, rest=rests, asked=st.tuples(roots, thirds | st.just(b"")))
@settings(max_examples=500)
def test_what_is_told_in_any_spelling_means_the_same_key(
    root: bytes, queue: bytes, third: bytes, rest: bytes, asked: tuple[bytes, bytes]
) -> None:
    stored = names.stored_key(b"/".join((b"", root, queue, third, rest)))
    spelling = names.spelling_of(b"/".join((b"", asked[0], queue, asked[1])))

    assert names.stored_key(names.spelled(stored, spelling)) == stored


@given(key=st.binary(max_size=20) | st.builds(lambda *parts: b"/".join((b"", *parts)), roots, rests, rests))
@settings(max_examples=500)
def test_storing_twice_is_storing_once(key: bytes) -> None:
    assert names.stored_key(names.stored_key(key)) == names.stored_key(key)
    assert names.stored(names.stored(key)) == names.stored(key)


@given(root=roots, queue=segments, third=words, rest=rests)
def test_a_key_that_is_asked_for_by_its_prefix_is_told_with_that_prefix(
    root: bytes, queue: bytes, third: bytes, rest: bytes
) -> None:
    prefix = b"/".join((b"", root, queue, third, b""))
    stored = names.stored_key(prefix + rest)

    assert names.spelled(stored, names.spelling_of(prefix)).startswith(prefix)


@given(root=roots, queue=segments, third=thirds, rest=rests, cut=st.integers(0, 8), is_in_queue=st.booleans())
@settings(max_examples=500)
def test_the_range_of_a_prefix_has_what_begins_with_it(
    root: bytes, queue: bytes, third: bytes, rest: bytes, cut: int, is_in_queue: bool
) -> None:
    key = b"/".join((b"", root, queue, third, rest))
    begun = (queue[:cut],) if is_in_queue else (queue, third, rest[:cut])
    prefix = b"/".join((b"", root, *begun))

    start, end = names.stored_range(prefix, names.prefix_end(prefix))

    assert start <= names.stored(key)
    assert end == UNBOUNDED or names.stored(key) < end


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        (b"/q/", b"/queue/"),
        (b"/q/x", b"/queue/x"),
        (b"/q/x/", b"/queue/x/"),
        (b"/q/x/c", b"/queue/x/consumer"),
        (b"/q/x/c/", b"/queue/x/consumer/"),
        (b"/q/x/c/A", b"/queue/x/consumer/A"),
        (b"/q/x/c/A/", b"/queue/x/consumer/A/"),
        (b"/q/x/p/", b"/queue/x/producer/"),
        (b"/q/x/i/me/", b"/queue/x/producer/me/"),
        (b"/queue/x/input/", b"/queue/x/producer/"),
        (b"/q/x/pro", b"/queue/x/pro"),
        (b"/q/x/0000", b"/queue/x/0000"),
        (b"/q/x/c/\xff", b"/queue/x/consumer/\xff"),
        (b"/queue/", b"/queue/"),
        (b"/q", b"/q"),
        (b"/", b"/"),
    ],
)
def test_a_prefix_goes_on_being_one(asked: bytes, stored: bytes) -> None:
    assert names.stored_range(asked, names.prefix_end(asked)) == (stored, names.prefix_end(stored))


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ((b"/q/x/c/A", b""), (b"/queue/x/consumer/A/", b"")),
        ((b"/q/x/c/A/", UNBOUNDED), (b"/queue/x/consumer/A/", UNBOUNDED)),
        ((b"/q/x/c/A/1", b"/q/x/c/A/9"), (b"/queue/x/consumer/A/1", b"/queue/x/consumer/A/9")),
        ((b"/q/x/0", b"/q/x/c"), (b"/queue/x/0", b"/queue/x/consumer")),
        ((b"/a", b"/q/x/c/A"), (b"/a", b"/queue/x/consumer/A")),
        ((b"/q/x/p/a", b"/z"), (b"/queue/x/producer/a", b"/z")),
        ((b"\0", UNBOUNDED), (b"\0", UNBOUNDED)),
        ((b"/a", b"/b"), (b"/a", b"/b")),
    ],
)
def test_both_ends_of_any_other_range_are_translated(
    asked: tuple[bytes, bytes], stored: tuple[bytes, bytes]
) -> None:
    assert names.stored_range(*asked) == stored


@pytest.mark.parametrize(
    ("asked", "stored", "told"),
    [
        (b"/q/x/c/A/", b"/queue/x/consumer/A/%b/m" % IDX, b"/q/x/c/A/%b/m" % IDX),
        (b"/q/x/consumer/A/", b"/queue/x/consumer/A/", b"/q/x/consumer/A/"),
        (b"/queue/x/c/A/", b"/queue/x/consumer/A/", b"/queue/x/c/A/"),
        (b"/q/x/input/", b"/queue/x/producer/m", b"/q/x/input/m"),
        (b"/q/x/", b"/queue/x/producer/m", b"/q/x/p/m"),
        (b"/q/", b"/queue/x/consumer/A/", b"/q/x/c/A/"),
        (b"/q/x/pro", b"/queue/x/producer/m", b"/q/x/producer/m"),
        (b"/q/x/con", b"/queue/x/consumer/A/", b"/q/x/consumer/A/"),
        (b"/q/x/con", b"/queue/x/config", b"/q/x/config"),
        (b"/q/x/0", b"/queue/x/consumer/A/", b"/q/x/c/A/"),
        (b"/queue/", b"/queue/x/consumer/A/", b"/queue/x/consumer/A/"),
        (b"/", b"/queue/x/consumer/A/", b"/queue/x/consumer/A/"),
        (b"\0", b"/queue/x", b"/queue/x"),
        (b"/q/x/c/A/", b"/plain", b"/plain"),
        (b"/q/", b"/queue//producer/m", b"/q//producer/m"),
    ],
)
def test_keys_are_told_in_the_words_of_the_request(asked: bytes, stored: bytes, told: bytes) -> None:
    assert names.spelled(stored, names.spelling_of(asked)) == told


@given(prefix=st.binary(max_size=4), rest=st.binary(max_size=4))
def test_the_end_of_a_prefix(prefix: bytes, rest: bytes) -> None:
    end = names.prefix_end(prefix)

    assert end == UNBOUNDED or prefix + rest < end
    assert end == UNBOUNDED or not end.startswith(prefix) or not prefix


def test_idx_sort_as_numbers() -> None:
    keys = [names.message_key(b"q", idx, b"m") for idx in (1, 2, 9, 10, 99, 100, 10**18, 10**19)]

    assert keys == sorted(keys)
    assert names.message_key(b"q", 1, b"a/b") == b"/queue/q/00000000000000000001/a/b"
