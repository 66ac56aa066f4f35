"""Records that are made from others: an export leaves them out, and after an import they are made again."""

from typing import Final

from holdfast.storage.keys import pack

_TABLES: Final = tuple(pack((name,)) for name in ("index", "indexinfo", "indexprogress"))
DERIVATION_KEY: Final = pack(("indexinfo", "format"))
"""Says how derived records were made. Where it is missing they are not believed, and made anew by who owns them."""


def is_derived(key: bytes) -> bool:
    return key.startswith(_TABLES)
