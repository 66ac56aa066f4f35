"""`python -m holdfast.state.layer.index.worker`: summaries of large documents, from standard input to standard output.

In: a line with the secret of the index in hexadecimal, or an empty one, then for each document its size on a line and its
bytes. Out: for each one the size of its summary on a line and the summary; 0: every term may match.
"""

import os
import signal
import sys

from holdfast.lql.errors import InvalidDocument
from holdfast.state.layer.index.summary import SummaryBuilder, TooManyEntries
from holdfast.state.layer.index.terms import Terms
from holdfast.state.layer.index.text import add_entries

NICENESS = 10  # Requests go first: until a summary is there, a query reads the document itself.


def main() -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # A server that died leaves its workers nothing to say.
    os.nice(NICENESS)
    secret = bytes.fromhex(sys.stdin.buffer.readline().decode().strip())
    terms = Terms(secret or None)
    while line := sys.stdin.buffer.readline():
        text = sys.stdin.buffer.read(int(line))
        if len(text) < int(line):
            return  # The server is gone.
        summary = summary_of(terms, text)
        sys.stdout.buffer.write(b"%d\n" % len(summary) + summary)
        sys.stdout.buffer.flush()


def summary_of(terms: Terms, text: bytes) -> bytes:
    builder = SummaryBuilder()
    try:
        add_entries(terms, text, builder.add)
    except (InvalidDocument, TooManyEntries):
        return b""
    return builder.build()


if __name__ == "__main__":
    main()
