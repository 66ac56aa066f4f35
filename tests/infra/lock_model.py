"""dflockd's rules for locks as its description says them, kept in plain lists: who is answered what, and when.

Nothing is fast here and nothing is shared with the lock table. Grants are numbered, as the tokens of a server are its own.
"""

from dataclasses import dataclass, field


@dataclass(eq=False)
class Slot:
    client: int
    grant: int
    ttl_s: int
    ends_s: float


@dataclass(eq=False)
class Place:
    client: int
    ttl_s: int
    is_asking: bool
    """Its client is blocked on it; else it was queued by `e`."""


@dataclass(eq=False)
class Key:
    limit: int
    slots: list[Slot] = field(default_factory=list)
    queue: list[Place] = field(default_factory=list)
    used_s: float = 0.0


@dataclass(eq=False)
class FirstHalf:
    """What `e` left for `w`: one of the two, or neither when the slot is lost."""

    ttl_s: int
    place: Place | None = None
    slot: Slot | None = None
    was_acquired: bool = False


class LockModel:
    """`answers` are those of clients that were blocked, and came by the last step: (key, client, answer)."""

    def __init__(self, keys_max: int, waiters_max: int) -> None:
        self.keys: dict[str, Key] = {}
        self.halves: dict[tuple[int, str], FirstHalf] = {}
        self.answers: list[tuple[str, int, str]] = []
        self._keys_max = keys_max
        self._waiters_max = waiters_max
        self._grants = 0

    # -- requests: the answer, or None when the client is blocked

    def lock(self, client: int, name: str, limit: int, ttl_s: int, waits: bool, now_s: float) -> str | None:
        key = self._judged(name, limit, now_s)
        if isinstance(key, str):
            return key
        if len(key.slots) < limit and not key.queue:
            return self._told(self._granted(key, client, ttl_s, now_s))
        if len(key.queue) >= self._waiters_max:
            return "error_max_waiters"
        if not waits:
            return "timeout"
        key.queue.append(Place(client, ttl_s, is_asking=True))
        return None

    def enqueue(self, client: int, name: str, limit: int, ttl_s: int, now_s: float) -> str:
        key = self._judged(name, limit, now_s)
        if isinstance(key, str):
            return key
        half = self.halves.get((client, name))
        if half is not None and (half.place or half.slot):
            return "error_already_enqueued"
        if len(key.slots) < limit and not key.queue:
            slot = self._granted(key, client, ttl_s, now_s)
            self.halves[client, name] = FirstHalf(ttl_s, slot=slot, was_acquired=True)
            return f"acquired #{slot.grant} {ttl_s}"
        if len(key.queue) >= self._waiters_max:
            return "error_max_waiters"
        place = Place(client, ttl_s, is_asking=False)
        key.queue.append(place)
        self.halves[client, name] = FirstHalf(ttl_s, place=place)
        return "queued"

    def wait(self, client: int, name: str, waits: bool, now_s: float) -> str | None:
        half = self.halves.get((client, name))
        if half is None:
            return "error_not_enqueued"
        if name in self.keys:
            self._evict(name, now_s)
        self.halves.pop((client, name), None)
        if half.slot is not None:
            half.slot.ttl_s = half.ttl_s
            half.slot.ends_s = now_s + half.ttl_s
            return self._told(half.slot)
        if half.place is None:
            return "error_lease_expired"
        if waits:
            half.place.is_asking = True
            return None
        self._remove(name, half.place, now_s)
        return "timeout"

    def release(self, name: str, grant: int, now_s: float) -> str:
        for slot in self.keys[name].slots if name in self.keys else ():
            if slot.grant == grant:
                self._free(name, slot, now_s)
                self._forget_half(name, slot)
                return "ok"
        return "error"

    def renew(self, name: str, grant: int, ttl_s: int, now_s: float) -> str:
        if name in self.keys:
            self._evict(name, now_s)
            for slot in self.keys[name].slots:
                if slot.grant == grant:
                    slot.ends_s = now_s + ttl_s
                    return f"ok {ttl_s}"
        return "error"

    # -- what is no request

    def give_up(self, client: int, name: str, now_s: float) -> None:
        """The time of a blocked client is over."""
        place = next(place for place in self.keys[name].queue if place.client == client and place.is_asking)
        self._remove(name, place, now_s)
        self.answers.append((name, client, "timeout"))

    def vanish(self, client: int, now_s: float, *, keeps_leases: bool = False) -> None:
        for at in [at for at in self.halves if at[0] == client]:
            del self.halves[at]
        for key in self.keys.values():
            was_used = bool(key.slots or key.queue)
            key.queue = [place for place in key.queue if place.client != client]
            if was_used and not key.slots and not key.queue:
                key.used_s = now_s
        if keeps_leases:
            return
        for name, key in self.keys.items():
            for slot in [slot for slot in key.slots if slot.client == client]:
                self._free(name, slot, now_s)

    def sweep(self, now_s: float) -> None:
        for name in self.keys:
            self._evict(name, now_s)

    def collect(self, now_s: float, idle_s: float) -> None:
        idle = [
            name
            for name, key in self.keys.items()
            if not key.slots and not key.queue and now_s - key.used_s > idle_s
        ]
        for name in idle:
            del self.keys[name]

    # -- small parts

    def _judged(self, name: str, limit: int, now_s: float) -> Key | str:
        if name not in self.keys:
            if len(self.keys) >= self._keys_max:
                return "error_max_locks"
            self.keys[name] = Key(limit, used_s=now_s)
        key = self.keys[name]
        if key.limit != limit:
            return "error_limit_mismatch"
        self._evict(name, now_s)
        return key

    def _evict(self, name: str, now_s: float) -> None:
        for slot in [slot for slot in self.keys[name].slots if slot.ends_s <= now_s]:
            for at, half in list(self.halves.items()):
                if half.slot is slot:
                    half.slot = None
                    if half.was_acquired:
                        del self.halves[at]
            self._free(name, slot, now_s)

    def _free(self, name: str, slot: Slot, now_s: float) -> None:
        key = self.keys[name]
        key.slots.remove(slot)
        while key.queue and len(key.slots) < key.limit:
            place = key.queue.pop(0)
            granted = self._granted(key, place.client, place.ttl_s, now_s)
            if place.is_asking:
                self.answers.append((name, place.client, self._told(granted)))
            else:
                half = self.halves[place.client, name]
                half.place, half.slot = None, granted
        if not key.slots and not key.queue:
            key.used_s = now_s

    def _granted(self, key: Key, client: int, ttl_s: int, now_s: float) -> Slot:
        self._grants += 1
        slot = Slot(client, self._grants, ttl_s, now_s + ttl_s)
        key.slots.append(slot)
        return slot

    def _forget_half(self, name: str, slot: Slot) -> None:
        if (half := self.halves.get((slot.client, name))) is not None and half.slot is slot:
            del self.halves[slot.client, name]

    def _remove(self, name: str, place: Place, now_s: float) -> None:
        key = self.keys[name]
        key.queue.remove(place)
        if not key.slots and not key.queue:
            key.used_s = now_s

    @staticmethod
    def _told(slot: Slot) -> str:
        return f"ok #{slot.grant} {slot.ttl_s}"
