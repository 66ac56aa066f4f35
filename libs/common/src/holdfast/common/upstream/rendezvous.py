"""Rendezvous hashing: every caller ranks the replicas for a key alike, and a lost replica moves only its own keys."""

from collections.abc import Sequence
from hashlib import blake2b

SEED_BYTES = 16


def seed_of(name: str) -> bytes:
    """What stands for a replica in the hash: a digest of its name, so that order and number do not matter."""
    return blake2b(name.encode(), digest_size=SEED_BYTES).digest()


def ranked(seeds: Sequence[bytes], affinity: bytes) -> list[int]:
    """The positions of all replicas, the home of `affinity` first, then who takes its place."""
    scores = [blake2b(affinity, digest_size=8, key=seed).digest() for seed in seeds]
    return sorted(range(len(seeds)), key=scores.__getitem__, reverse=True)


def home(seeds: Sequence[bytes], affinity: bytes) -> int:
    """The first of `ranked`."""
    best, best_score = 0, b""
    for position, seed in enumerate(seeds):
        score = blake2b(affinity, digest_size=8, key=seed).digest()
        if score > best_score:
            best, best_score = position, score
    return best
