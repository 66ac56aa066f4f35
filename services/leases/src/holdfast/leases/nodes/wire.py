"""A connection between two nodes: frames of four bytes of length and a list in MessagePack, proofs, and a heart that beats.

The node that accepts sends a challenge; the node that connects answers it with a proof and a challenge of its own, which is answered as
well: HMAC-SHA256 under the key that the store keeps for its nodes. Nothing else is looked at before.
"""

import asyncio
import hmac
import secrets
from typing import Any, Final, cast

import msgspec

from holdfast.common.logging import get_logger
from holdfast.leases.layer.locks.records import Grant, Outcome, Refused
from holdfast.leases.layer.locks.values import ValueRefused

BEATS_MISSED_MAX: Final = 4
"""Beats without anything are the end of the connection. The node that asks gives it up first: what its clients hold at the other one
is lost, and they have to know before another client holds it."""
BEATS_MISSED_MAX_ACCEPTED: Final = 8
FRAME_BYTES_MAX: Final = 4 << 20
PROOF_BYTES_MAX: Final = 1 << 10
UNSENT_BYTES_MAX: Final = 32 << 20
"""A node that takes no more than this is as good as gone."""
_LENGTH_BYTES: Final = 4
_NONCE_BYTES: Final = 32
_BEAT: Final = ["beat"]

_log = get_logger("leases.locks")

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list).decode

Frame = list[Any]


class Wire(asyncio.Protocol):
    """One end. `received` gets each frame once both ends are proven."""

    def __init__(self, key: bytes, beat_s: float, *, accepts: bool) -> None:
        self._key = key
        self._beat_s = beat_s
        self._silence_s_max = beat_s * (BEATS_MISSED_MAX_ACCEPTED if accepts else BEATS_MISSED_MAX)
        self._accepts = accepts
        self._nonce = secrets.token_bytes(_NONCE_BYTES)
        self._their_nonce = b""
        self._unread = bytearray()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._heard_s = self._begun_s = 0.0
        self.is_proven = False
        self.is_open = True

    # -- for those who inherit

    def received(self, frame: Frame) -> None:
        raise NotImplementedError

    def proven(self) -> None:
        """The other end is a node of this store."""

    def lost(self) -> None:
        """It has ended, by either side."""

    def send(self, *fields: Any) -> bool:
        """Whether it is no longer than the other end takes."""
        transport = self._transport
        if transport is None or not self.is_open:
            return True
        body = _encode(fields)
        if len(body) > FRAME_BYTES_MAX:
            return False
        transport.write(len(body).to_bytes(_LENGTH_BYTES, "big") + body)
        if transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            self.end()
        return True

    @property
    def unsent_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def end(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._heard_s = self._begun_s = asyncio.get_running_loop().time()
        self._beat()
        if self._accepts:
            self.send("challenge", self._nonce)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if self._timer is not None:
            self._timer.cancel()
        self.lost()

    def data_received(self, data: bytes) -> None:
        self._heard_s = asyncio.get_running_loop().time()
        unread = self._unread
        unread += data
        at = 0
        while self.is_open and len(unread) - at >= _LENGTH_BYTES:
            size_bytes = int.from_bytes(unread[at : at + _LENGTH_BYTES], "big")
            if size_bytes > (FRAME_BYTES_MAX if self.is_proven else PROOF_BYTES_MAX):
                self.end()
                return
            end = at + _LENGTH_BYTES + size_bytes
            if len(unread) < end:
                break
            self._take(bytes(unread[at + _LENGTH_BYTES : end]))
            at = end
        del unread[:at]

    def _take(self, body: bytes) -> None:
        try:
            frame = _decode(body)
            if not self.is_proven:
                self._prove(frame)
            elif frame != _BEAT:
                self.received(frame)
        except (msgspec.DecodeError, ValueError, TypeError, LookupError) as error:
            _log.warn("locks.link.refused", is_proven=self.is_proven, reason=repr(error))
            self.end()  # No node of this store sends that.

    def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        heard_s = self._heard_s if self.is_proven else self._begun_s
        if loop.time() - heard_s > self._silence_s_max:
            self.end()
            return
        if self.is_proven:
            self.send(*_BEAT)
        self._timer = loop.call_later(self._beat_s, self._beat)

    # -- the proofs

    def _prove(self, frame: Frame) -> None:
        kind, *fields = frame
        if kind == "challenge" and not self._accepts and not self._their_nonce:
            (self._their_nonce,) = fields
            self.send("answer", self._proof(b"connects"), self._nonce)
        elif kind == "answer" and self._accepts:
            proof, self._their_nonce = fields
            self._check(proof, b"connects")
            self.send("welcome", self._proof(b"accepts"))
        elif kind == "welcome" and not self._accepts and self._their_nonce:
            self._check(fields[0], b"accepts")
        else:
            raise ValueError

    def _check(self, proof: bytes, who: bytes) -> None:
        if not hmac.compare_digest(proof, self._proof(who)):
            raise ValueError
        self.is_proven = True
        self.proven()

    def _proof(self, who: bytes) -> bytes:
        ours, theirs = self._nonce, self._their_nonce
        nonces = ours + theirs if self._accepts else theirs + ours
        return hmac.digest(self._key, who + nonces, "sha256")


def packed(outcome: Outcome) -> Frame:
    """An outcome as a frame carries it."""
    if isinstance(outcome, Grant):
        return ["grant", outcome.token, outcome.ttl_s]
    if isinstance(outcome, Refused):
        return ["refused", outcome.value]
    if isinstance(outcome, ValueRefused):
        return ["value refused", outcome.value]
    return ["is", outcome]


def unpacked(fields: Frame) -> Outcome:
    kind, *values = fields
    if kind == "grant":
        token, ttl_s = values
        return Grant(token, ttl_s)
    if kind == "refused":
        return Refused(values[0])
    if kind == "value refused":
        return ValueRefused(values[0])
    outcome: Outcome = values[0]
    return outcome
