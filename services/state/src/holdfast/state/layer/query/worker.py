"""`python -m holdfast.state.layer.query.worker`: matches large documents, from standard input to standard output.

In: a line of JSON with the selector and the time, then for each document its size on a line and its bytes. Out: `1` for
each one that matches, `0` for each that does not.
"""

import json
import signal
import sys

from holdfast.lql.document.value import parse_document
from holdfast.lql.errors import InvalidDocument
from holdfast.lql.selector.evaluation import Matcher
from holdfast.lql.selector.json import selector_from_json


def main() -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # A server that died leaves its workers nothing to say.
    order_line = sys.stdin.buffer.readline()
    if not order_line:
        return  # The caller is gone.
    order = json.loads(order_line)
    matcher = Matcher(selector_from_json(order["selector"]), now_ns=order["now_ns"])
    while line := sys.stdin.buffer.readline():
        document = sys.stdin.buffer.read(int(line))
        if len(document) < int(line):
            return  # The server is gone.
        sys.stdout.buffer.write(b"1" if _is_match(matcher, document) else b"0")
        sys.stdout.buffer.flush()


def _is_match(matcher: Matcher, document: bytes) -> bool:
    try:
        return matcher.matches(parse_document(document))
    except InvalidDocument:
        return False


if __name__ == "__main__":
    main()
