"""The two AEAD suites of HF1 and which of them this machine writes with; both are always readable."""

from enum import IntEnum
from functools import cache
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

TAG_BYTES = 16
NONCE_BYTES = 12

Cipher = AESGCM | ChaCha20Poly1305


class Suite(IntEnum):
    """As written in descriptors and headers."""

    AES_256_GCM = 1
    CHACHA20_POLY1305 = 2


def cipher(suite: int, key: bytes) -> Cipher:
    """`suite` must be one of `Suite`."""
    return AESGCM(key) if suite == Suite.AES_256_GCM else ChaCha20Poly1305(key)


@cache
def preferred_suite(cpuinfo: Path = Path("/proc/cpuinfo")) -> Suite:
    """AES where the CPU has instructions for it, else ChaCha20, which is the faster one in plain code.

    Where the machine does not tell (no such file) ChaCha20 is chosen: never much slower, never leaking by timing.
    """
    try:
        text = cpuinfo.read_text(encoding="ascii", errors="replace")
    except OSError:
        return Suite.CHACHA20_POLY1305
    flags: set[str] = set()
    for line in text.splitlines():
        label, _, rest = line.partition(":")
        if label.strip().lower() in ("flags", "features"):  # x86 says flags, ARM says Features.
            flags.update(rest.split())
    return Suite.AES_256_GCM if "aes" in flags else Suite.CHACHA20_POLY1305
