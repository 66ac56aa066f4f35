"""Bodies of locks and signals on the wire; the field names are the contract. A null stands for a field left out."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

OWNER_CHARS_MAX = 256

Int64 = Annotated[int, Field(ge=-(1 << 63), le=(1 << 63) - 1)]
Limit = Annotated[int, Field(ge=1, le=(1 << 63) - 1)]
Seconds = Annotated[int, Field(ge=0, le=(1 << 63) - 1)]
TtlSeconds = Annotated[int, Field(ge=1, le=(1 << 63) - 1)]


class LockBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    key: str | None = Field(default=None, description="1 to 256 bytes without blanks.")


class WantedLock(LockBody):
    limit: Limit | None = Field(
        default=None, description="Slots of the key: 1, a lock, if left out; more, a semaphore."
    )
    ttl_seconds: TtlSeconds | None = Field(
        default=None, description="The lease of the slot; left out: the server's default."
    )
    owner: Annotated[str, Field(max_length=OWNER_CHARS_MAX)] | None = Field(
        default=None, description="Who wants it, for people who look."
    )


class AcquireLockRequest(WantedLock):
    wait_seconds: Seconds | None = Field(default=None, description="0, or left out: do not wait.")


class EnqueueRequest(WantedLock):
    """The first of two phases; `ttl_seconds` is also how long the ticket lasts that is not waited for."""


class WaitRequest(LockBody):
    ticket: str | None = Field(default=None, description="What enqueue answered.")
    wait_seconds: Seconds | None = Field(default=None, description="0, or left out: only look.")


class RenewRequest(LockBody):
    token: str | None = None
    ttl_seconds: TtlSeconds | None = Field(
        default=None, description="From now on; left out: the server's default."
    )


class ReleaseLockRequest(LockBody):
    key_base64: str | None = Field(default=None, description="In place of `key`, for one that is no text.")
    token: str | None = None
    force: bool | None = Field(
        default=None, description="Free every slot of the key, for all holders; no token is needed."
    )
    fencing_token: Int64 | None = Field(
        default=None, description="With force: only slots that were granted up to this one."
    )


class GrantAnswer(BaseModel):
    key: str
    token: str = Field(description="What renews and releases the slot.")
    fencing_token: int = Field(description="Greater than that of every earlier grant of the key.")
    limit: int
    ttl_seconds: int
    owner: str
    correlation_id: str


class EnqueueAnswer(BaseModel):
    state: Literal["granted", "queued"]
    key: str
    ticket: str | None = Field(default=None, description="For `/v1/locks/wait`, if queued.")
    token: str | None = Field(default=None, description="If granted: the lease runs already.")
    fencing_token: int | None = None
    limit: int
    ttl_seconds: int
    owner: str
    correlation_id: str


class RenewAnswer(BaseModel):
    ttl_seconds: int = Field(description="The lease ends so long after now.")


class ReleaseLockAnswer(BaseModel):
    released: int = Field(description="Slots that became free: 1, or by force any number.")


class ShownHolder(BaseModel):
    owner: str
    address: str = Field(description="Where it was acquired from.")
    fencing_token: int
    ttl_seconds: int
    age_seconds: float = Field(description="Since the grant.")
    lease_expires_in_seconds: float


class ShownWaiter(BaseModel):
    owner: str
    address: str
    age_seconds: float


class ShownLock(BaseModel):
    key: str
    key_base64: str | None = Field(default=None, description="If the key is no text.")
    limit: int
    held: int
    waiting: int
    idle_seconds: float | None = Field(default=None, description="Since there was a holder or a waiter.")
    holders: list[ShownHolder] = Field(description="By age; of many the first ones. Tokens are not shown.")
    waiters: list[ShownWaiter] = Field(description="In their order; of many the first ones.")


class LocksAnswer(BaseModel):
    locks: list[ShownLock]
    cursor: str | None = Field(default=None, description="For the next page, if there is one.")


class SignalRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    channel: str | None = Field(
        default=None, description="Tokens with dots between them; no blanks, no * and >."
    )
    payload: str | None = Field(default=None, description="1 to 256 bytes in one line.")
    payload_base64: str | None = Field(default=None, description="In its place, for one that is no text.")


class ShownListener(BaseModel):
    address: str = Field(description="Where the listener connected from.")
    age_seconds: float = Field(description="Since it listens.")


class ShownChannel(BaseModel):
    pattern: str
    pattern_base64: str | None = Field(default=None, description="If the pattern is no text.")
    group: str | None = Field(default=None, description="If its listeners share the signals.")
    group_base64: str | None = Field(default=None, description="If the group is no text.")
    listeners: int
    listening: list[ShownListener] = Field(description="By age; of many the first ones.")


class ChannelsAnswer(BaseModel):
    channels: list[ShownChannel] = Field(description="By their patterns and groups; of many the first ones.")
    total: int = Field(description="So many there are.")


class SignalAnswer(BaseModel):
    delivered: int = Field(description="Listeners that took it.")
