"""JSON text cut at its quotes: what lies in its strings, and what lies between them."""

from typing import Final

WHITE_SPACE: Final = b" \t\n\r"


def split_at_quotes(text: bytes) -> list[bytes]:
    """The text between strings at even places, the contents of strings at odd ones.

    Control characters, which valid text does not have, stand in for the escapes that would be in the way.
    """
    if b"\\" in text:
        text = text.replace(b"\\\\", b"\x00\x00").replace(b'\\"', b"\x00\x01")
    return text.split(b'"')


def join_at_quotes(parts: list[bytes]) -> bytes:
    """The text that was split."""
    text = b'"'.join(parts)
    if b"\x00" in text:
        text = text.replace(b"\x00\x01", b'\\"').replace(b"\x00\x00", b"\\\\")
    return text


def without_white_space(text: bytes) -> bytes:
    """Valid text, of tokens each of which is whole, without what stands between them."""
    if len(text.translate(None, WHITE_SPACE)) == len(text):
        return text
    parts = split_at_quotes(text)
    parts[::2] = b'"'.join(parts[::2]).translate(None, WHITE_SPACE).split(b'"')
    return join_at_quotes(parts)
