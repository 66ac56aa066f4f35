"""Takes the white space out of JSON that is known to be valid."""

from holdfast.common.json_text.grammar import WHITE_SPACE


def without_white_space(text: bytes) -> bytes:
    """Valid tokens, each of them whole, without what stands between them.

    The text is cut at its quotes: every other part lies between strings. Walking it by a pattern costs three times
    as much. Control characters, which valid text does not have, stand in for the escapes that would be in the way.
    """
    if len(text.translate(None, WHITE_SPACE)) == len(text):
        return text
    has_escapes = b"\\" in text
    if has_escapes:
        text = text.replace(b"\\\\", b"\x00\x00").replace(b'\\"', b"\x00\x01")
    parts = text.split(b'"')
    parts[::2] = b'"'.join(parts[::2]).translate(None, WHITE_SPACE).split(b'"')
    text = b'"'.join(parts)
    if has_escapes:
        text = text.replace(b"\x00\x01", b'\\"').replace(b"\x00\x00", b"\\\\")
    return text
