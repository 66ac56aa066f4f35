"""The language in which etcdctl is told a transaction."""

import pytest

from holdfast.cli.kv.txn_text import (
    COMPARES,
    FAILURE,
    SUCCESS,
    Operation,
    TxnReader,
    TxnTextError,
    compare_of,
    operation_of,
    unquoted,
    words_of,
)
from holdfast.client import Compare, DeleteOp, GetOp, PutOp
from holdfast.client.kv.fields import octets


@pytest.mark.parametrize(
    ("line", "compare"),
    [
        ('mod("key1") > "0"\n', Compare.mod("key1", ">", 0)),
        ('m("key1") < "9"', Compare.mod("key1", "<", 9)),
        ('create("k") = "0"', Compare.create("k", "=", 0)),
        ('c("k") != "0"', Compare.create("k", "!=", 0)),
        ('ver("k")="9223372036854775807"', Compare.version("k", "=", 2**63 - 1)),
        ('version( "k" ) = "1"', Compare.version("k", "=", 1)),
        ('val("a b\\"c") = "x y"', Compare.value('a b"c', "=", "x y")),
        ('value(`raw\\`) = `a"b`', Compare.value("raw\\", "=", 'a"b')),
        ('lease("k") = "694d5765fc71500b"', Compare.lease("k", "=", 0x694D5765FC71500B)),
    ],
)
def test_a_comparison_is_read(line: str, compare: Compare) -> None:
    assert compare_of(line) == compare


@pytest.mark.parametrize(
    ("line", "operation"),
    [
        ('put key1 "overwrote-key1"\n', PutOp("key1", "overwrote-key1")),
        ("put 'a b' ''", PutOp("a b")),
        ("put k v --lease=0a --prev-kv", PutOp("k", "v", lease=10, prev_kv=True)),
        ("put --ignore-value --ignore-lease k", PutOp("k", ignore_value=True, ignore_lease=True)),
        ("put k -- -v", PutOp("k", "-v")),
        ("get k", GetOp("k")),
        ("get a c --limit 5 --rev=7", GetOp("a", "c", limit=5, revision=7)),
        (
            "get --prefix a/ --sort-by modify --order descend --keys-only",
            GetOp("a/", prefix=True, sort_by="MOD", order="DESCEND", keys_only=True),
        ),
        ('get "" --from-key --count-only', GetOp("", from_key=True, count_only=True)),
        ("del k", DeleteOp("k")),
        ("del a/ --prefix --prev-kv", DeleteOp("a/", prefix=True, prev_kv=True)),
        ("del a c", DeleteOp("a", "c")),
        ("del a --from-key", DeleteOp("a", from_key=True)),
    ],
)
def test_an_operation_is_read_with_the_options_of_its_command(line: str, operation: Operation) -> None:
    read = operation_of(line)

    assert type(read) is type(operation)
    assert read.members() == operation.members()


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ('"a\\tb\\n\\\\"', b"a\tb\n\\"),
        ('"\\xff\\x00"', b"\xff\0"),
        ('"\\303\\251"', "é".encode()),
        ('"\\u00e9\\U0001F600"', "é😀".encode()),
        ('"é"', "é".encode()),
        ("`\\n`", b"\\n"),
    ],
)
def test_a_string_is_read_as_go_quotes_it(text: str, data: bytes) -> None:
    assert octets(unquoted(text)) == data


def test_words_are_split_at_blanks_outside_of_quotes() -> None:
    assert words_of('  put  "a b" \'c "d\' `e f` g="h"  ') == ["put", "a b", 'c "d', "e f", 'g="h"']
    assert words_of(" \n") == []


@pytest.mark.parametrize(
    "line",
    [
        "mod(key1) > 0",
        'size("k") = "1"',
        'mod("k") ~ "1"',
        'mod("k") = "x"',
        'mod("k") = "1" and more',
        'val("\\q") = "1"',
        'val("\\ud800") = "1"',
        'val("\\777") = "1"',
        "",
    ],
)
def test_a_comparison_that_is_none_is_named(line: str) -> None:
    with pytest.raises(TxnTextError):
        compare_of(line)


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("frob k", "expected put, get or del"),
        ("put k", "put KEY VALUE"),
        ("put k v --ignore-value", "put KEY VALUE"),
        ("put", "key"),
        ("put k v w", "w"),
        ("put k v --leas=1", "--leas"),
        ("put k v --lease=zz", "no number"),
        ("get k --limit many", "--limit"),
        ("get k --order sideways", "ASCEND, DESCEND"),
        ('put k "v', "quote"),
        ('put k "v"w', "quote"),
        ("--help", "expected put, get or del"),
        ("get --help", "--help"),
    ],
)
def test_an_operation_that_is_none_is_named_with_what_was_expected(line: str, hint: str) -> None:
    with pytest.raises(TxnTextError) as raised:
        operation_of(line)

    assert hint in str(raised.value)


def test_lines_become_a_transaction() -> None:
    reader = TxnReader()
    reader.feed(COMPARES, 'ver("a") = "0"')
    reader.feed(SUCCESS, "put a 1")
    reader.feed(SUCCESS, "get a")
    reader.feed(FAILURE, "del a")

    operation = reader.operation()

    assert [len(part) for part in (operation.compare, operation.success, operation.failure)] == [1, 2, 1]
