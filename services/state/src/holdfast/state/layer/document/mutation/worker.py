"""`python -m holdfast.state.layer.document.mutation.worker`: changes one large document, from standard input to standard output.

In: a line of JSON with the expressions and the time, then the document. Out: a line of JSON with the size of the changed
document or with what was wrong, then the document.
"""

import json
import signal
import sys

from holdfast.lql.errors import LqlError
from holdfast.lql.mutation.application import apply_mutations


def main() -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # A server that died leaves its workers nothing to say.
    order_line = sys.stdin.buffer.readline()
    if not order_line:
        return  # The caller is gone.
    order = json.loads(order_line)
    document = sys.stdin.buffer.read()
    try:
        changed = apply_mutations(document, order["expressions"], now_ns=order["now_ns"])
    except LqlError as error:
        sys.stdout.buffer.write(json.dumps({"problem": error.detail}).encode() + b"\n")
        return
    sys.stdout.buffer.write(json.dumps({"bytes": len(changed)}).encode() + b"\n")
    sys.stdout.buffer.write(changed)


if __name__ == "__main__":
    main()
