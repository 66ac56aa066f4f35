"""What the index says about a document: a set of entries, each a path and what is found there. Pure.

An entry is the middle of a key ("index", namespace, path, kind, …, key), in the encoding of `holdfast.storage.keys`:

    (path, NULL)                      null
    (path, CONTAINER)                 an object or an array
    (path, TEXT, text)                a scalar by its text form
    (path, LONG_TEXT, prefix, hash)   the same, if it is long
    (path, NUMBER, float)             besides the text: a number, or a text that reads as one, rounded
    (path, MOMENT, seconds)           besides the text: a date or time, rounded down
    ("", PARTIAL)                     no entry but this one: the document has too much to say; `index_summary` may say it

The path is a JSON pointer in which every array element is `~2`: `/items/~2/sku`. With a secret, as in an encrypted store,
no value stands in an entry: TEXT holds a keyed hash of the text, and there are no other entries for scalars.
"""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b, sha256
from typing import TYPE_CHECKING, Final

from holdfast.lql.document.value import Number, Value, parse_document
from holdfast.lql.errors import InvalidDocument
from holdfast.lql.number import parse_float
from holdfast.lql.pointer import escaped
from holdfast.lql.temporal import NANOS_PER_S, parse_temporal
from holdfast.storage.keys import pack

if TYPE_CHECKING:
    from _hashlib import HASH

_FORMAT: Final = "2"  # To be raised with every change of what is written for a document.
ENTRIES_MAX: Final = 512
ELEMENT: Final = "/~2"
TEXT_BYTES_MAX: Final = 64
_PATH_BYTES_MAX: Final = 256
_PATH_PREFIX_BYTES: Final = 192
_HASH_BYTES: Final = 16
_PLACES_BELOW_MAX: Final = 256
_PLACES_MAX: Final = 50_000
_PLACES_BYTES_MAX: Final = 8 << 20
_PLACE_BYTES, _PLACE_BYTES_PER_BYTE = (
    448,
    3,
)  # Object, dict and places in it; its path, its head and its name.

NULL, CONTAINER, TEXT, LONG_TEXT, NUMBER, MOMENT, PARTIAL_KIND = (pack((kind,)) for kind in range(1, 8))
PARTIAL: Final = pack((b"",)) + PARTIAL_KIND
NOTHING: Final[frozenset[bytes]] = frozenset()
ONLY_PARTIAL: Final = frozenset((PARTIAL,))

_NUMBER_STARTS: Final = frozenset("+-.0123456789")


def element(raw: bytes) -> bytes:
    """Bytes as one element of a key."""
    return b"@%b\0" % (raw.replace(b"\0", b"\0\xff") if b"\0" in raw else raw)


def path_element(path: str) -> bytes:
    """A path as one element of a key; a long one by its hash."""
    raw = _encoded(path)
    if len(raw) > _PATH_BYTES_MAX:
        return _long_path_element(raw[:_PATH_PREFIX_BYTES], sha256(raw))
    return element(raw)


def _long_path_element(prefix: bytes, digest: "HASH") -> bytes:
    return element(b"%b~3%b" % (prefix, digest.digest()))


def _encoded(path: str) -> bytes:
    return path.encode("utf-8", "surrogatepass")  # Names may hold halves of characters.


def number_element(number: float) -> bytes:
    return pack((number + 0.0,))  # Both zeros are one.


def moment_element(instant_ns: int) -> bytes:
    return pack((instant_ns // NANOS_PER_S,))


@dataclass(slots=True)
class PlacesKept:
    """What the places that are kept take, all together."""

    size_bytes: int = 0


class PathNode:
    """A path and those below it. Documents resemble each other: each short path is made once and found again from there.

    A long path is known by its start and its running hash, and made anew each time: a document may nest hundreds of
    names, and each path would hold all those above it.
    """

    __slots__ = ("_below", "_digest", "_kept", "_raw", "head")

    def __init__(self, raw: bytes, kept: PlacesKept, digest: "HASH | None" = None) -> None:
        """`digest`: that of a long path, of which `raw` is the start."""
        self._raw = raw
        self._kept = kept
        self._digest = digest
        self._below: dict[str | None, PathNode] = {}
        self.head = element(raw) if digest is None else _long_path_element(raw, digest)

    def below(self, name: str | None) -> "PathNode":
        """The place of a member, or of the elements."""
        place = self._below.get(name)
        if place is None:
            place = self._place_of(name)
            if place._digest is None and self._has_room():
                self._below[name] = place
                self._kept.size_bytes += _PLACE_BYTES + _PLACE_BYTES_PER_BYTE * len(place._raw)
        return place

    def _has_room(self) -> bool:
        return len(self._below) < _PLACES_BELOW_MAX and self._kept.size_bytes < _PLACES_BYTES_MAX

    def _place_of(self, name: str | None) -> "PathNode":
        step = _encoded(ELEMENT if name is None else "/" + escaped(name))
        if self._digest is not None:
            digest = self._digest.copy()
            digest.update(step)
            return PathNode(self._raw, self._kept, digest)
        raw = self._raw + step
        if len(raw) > _PATH_BYTES_MAX:
            return PathNode(raw[:_PATH_PREFIX_BYTES], self._kept, sha256(raw))
        return PathNode(raw, self._kept)


class Terms:
    """Makes entries; with a secret, such that tell nothing about values."""

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = secret
        self._forget_places()

    @property
    def secret(self) -> bytes | None:
        return self._secret

    @property
    def format(self) -> str:
        """What the entries of a store depend on: another format means another set of entries."""
        if self._secret is None:
            return _FORMAT
        return f"{_FORMAT}:{sha256(b'holdfast index' + self._secret).hexdigest()[:16]}"

    @property
    def is_hashed(self) -> bool:
        return self._secret is not None

    def of_text(self, text: bytes) -> frozenset[bytes]:
        """The entries of a JSON document."""
        try:
            return self.of_document(parse_document(text))
        except InvalidDocument:
            return ONLY_PARTIAL  # Nested too deep; the evaluation of the document decides.

    def of_document(self, document: Value) -> frozenset[bytes]:
        if not isinstance(document, dict):
            return NOTHING  # Nothing but the empty selector matches it.
        entries: set[bytes] = set()
        containers: list[tuple[PathNode, dict[str, Value] | list[Value]]] = [(self.root, document)]
        while containers:
            place, container = containers.pop()
            if isinstance(container, dict):
                children = [(place.below(name), value) for name, value in container.items()]
            else:
                below = place.below(None)
                children = [(below, value) for value in container]
            for child, value in children:
                if isinstance(value, str):
                    self.add_text(entries.add, child.head, value)
                elif value is True or value is False:
                    entries.add(self.text_entry(child.head, "true" if value else "false"))
                elif isinstance(value, dict | list):
                    entries.add(child.head + CONTAINER)
                    containers.append((child, value))
                else:
                    entries.add(child.head + NULL)
            if len(entries) > ENTRIES_MAX:
                break
        self._count(len(entries))
        return frozenset(entries) if len(entries) <= ENTRIES_MAX else ONLY_PARTIAL

    def text_entry(self, head: bytes, text: str) -> bytes:
        """The entry of a path for a scalar with this text form."""
        raw = text.encode("utf-8", "surrogatepass")
        if self._secret is not None:
            return (
                head + TEXT + element(blake2b(head + raw, digest_size=_HASH_BYTES, key=self._secret).digest())
            )
        if len(raw) <= TEXT_BYTES_MAX:
            return head + TEXT + element(raw)
        return head + LONG_TEXT + element(raw[:TEXT_BYTES_MAX]) + element(sha256(raw).digest()[:_HASH_BYTES])

    def add_text(self, add: Callable[[bytes], None], head: bytes, text: str) -> None:
        """A text, or a number as it is spelled."""
        add(self.text_entry(head, text))
        if self._secret is not None:
            return
        if isinstance(text, Number):
            add(head + NUMBER + number_element(float(text)))
        elif text[:1] in _NUMBER_STARTS:
            number = parse_float(text)
            if number is not None:
                add(head + NUMBER + number_element(number))
            moment = parse_temporal(text)
            if moment is not None:
                add(head + MOMENT + moment_element(moment.instant_ns))

    def _count(self, made_count: int) -> None:
        """Names that no document uses any more must not stay for ever."""
        self._made_count += made_count
        if self._made_count > _PLACES_MAX or self._kept.size_bytes >= _PLACES_BYTES_MAX:
            self._forget_places()

    def _forget_places(self) -> None:
        self._made_count = 0
        self._kept = PlacesKept()
        self.root = PathNode(b"", self._kept)
