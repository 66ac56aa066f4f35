"""Recognises the plainest form of an answer, which nearly all small ones of our own services have, without a parser.

Only a whole answer that arrives in one piece and is beyond doubt is taken: status line, date, headers that say nothing
of the connection, one Content-Length, the correlation id, as the express lane renders them. Everything else, right or
wrong, goes to the real parser, which alone decides what is malformed.
"""

import re
from typing import Final

from holdfast.common.upstream.port import UpstreamAnswer

# Names are in lower case here, so the other spellings of these do not match either.
_OTHER: Final = (
    rb"(?!connection:|content-length:|date:|keep-alive:|proxy-|shutdown-imminent:|te:|trailer:|transfer-encoding:"
    rb"|upgrade:|x-correlation-id:)[0-9a-z!#$%&'*+.^_`|~-]++: (?! )[\x20-\x7e]++(?<! )\r\n"
)
_match = re.compile(
    rb"HTTP/1\.1 ([2-5][0-9][0-9]) [\x20-\x7e]*+\r\ndate: [\x20-\x7e]++\r\n((?:%b)*+)"
    rb"content-length: ([0-9]{1,5})\r\nx-correlation-id: ([\x20-\x7e]{1,128})\r\n\r\n" % _OTHER
).match

_BODILESS: Final = (b"204", b"304")
HEAD_BYTES_MAX: Final = 700
"""Short enough that the limits of the real parser on size and number of headers cannot be reached."""


def quick_answer(data: bytes) -> UpstreamAnswer | None:
    """The answer, when `data` is nothing but a plain one."""
    match = _match(data, 0, HEAD_BYTES_MAX)
    if match is None:
        return None
    status, lines, length, correlation_id = match.groups()
    size_bytes = int(length)
    end = match.end()
    if len(data) != end + size_bytes or status in _BODILESS:
        return None
    return UpstreamAnswer(
        int(status), lines, data[end:], size_bytes=size_bytes, correlation_id=correlation_id
    )
