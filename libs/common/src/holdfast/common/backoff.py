"""Growing pauses with jitter, between the attempts of what is tried again."""

import asyncio
import random
import time
from typing import Final

PAUSE_S_FIRST: Final = 0.02
PAUSE_S_MAX: Final = 1.0


class Backoff:
    """Pauses between attempts until `for_s` seconds have passed; for ever if that is None."""

    def __init__(self, for_s: float | None, *, first_s: float = PAUSE_S_FIRST) -> None:
        self._end_s = None if for_s is None else time.monotonic() + for_s
        self._pause_s = first_s

    @property
    def is_over(self) -> bool:
        return self._end_s is not None and time.monotonic() >= self._end_s

    async def pause(self) -> None:
        """Between half and the whole of the next pause, so that many clients do not come back at once."""
        await asyncio.sleep(self._pause_s * random.uniform(0.5, 1.0))
        self._pause_s = min(PAUSE_S_MAX, self._pause_s * 2)
