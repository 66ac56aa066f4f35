"""Identifiers are unique across a fork."""

import subprocess
import sys

from tests.unit.common.test_ids import decode_xid

FORKING = """
import os
from holdfast.common.ids import new_xid, uuid7
new_xid(), uuid7()
child = os.fork()
os.write(1, f"{os.getpid()} {new_xid()} {' '.join(uuid7() for _ in range(100))}\\n".encode())
if child:
    os.waitpid(child, 0)
"""


def test_a_forked_child_draws_from_its_own_source() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=60, check=True
    )

    one, other = (line.split() for line in ended.stdout.splitlines())
    for pid, xid, *_ in (one, other):
        assert int.from_bytes(decode_xid(xid)[7:9], "big") == int(pid) & 0xFFFF
    assert not set(one[2:]) & set(other[2:])
