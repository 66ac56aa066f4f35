"""The settings of a server process: every flag, read in the order flags, environment, `.env`, file, default."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import PrivateAttr, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from holdfast.common.logging import Logger
from holdfast.common.settings.backpressure import BackpressureFields
from holdfast.common.settings.check import is_local_listener, problems, start_problems
from holdfast.common.settings.cluster import ClusterFields, HaFields, MaintenanceFields
from holdfast.common.settings.complaint import complaint
from holdfast.common.settings.display import shown
from holdfast.common.settings.etcd import EtcdFields
from holdfast.common.settings.flag import Flag, flag_of
from holdfast.common.settings.locks import LockFields
from holdfast.common.settings.origin import Layer, SettingsError, Surroundings, default_environ, surroundings
from holdfast.common.settings.server import (
    LeaseFields,
    SecurityFields,
    ServerFields,
    SharedFields,
    TelemetryFields,
)
from holdfast.common.settings.split import SplitFields
from holdfast.common.settings.storage import (
    DiskFields,
    IndexFields,
    ObjectStoreFields,
    QueueFields,
    StoreFields,
)


class _LayerSource(PydanticBaseSettingsSource):
    """Hands one layer to pydantic-settings."""

    def __init__(self, settings_cls: type[BaseSettings], layer: Layer) -> None:
        super().__init__(settings_cls)
        self._layer = layer

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        return self._layer.values.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        return dict(self._layer.values)


class PlaneSettings(  # pydantic collects fields from the last base on; this gives the order of help and docs.
    BackpressureFields,
    TelemetryFields,
    ObjectStoreFields,
    DiskFields,
    StoreFields,
    IndexFields,
    QueueFields,
    MaintenanceFields,
    HaFields,
    ClusterFields,
    SplitFields,
    SecurityFields,
    EtcdFields,
    LockFields,
    LeaseFields,
    SharedFields,
    ServerFields,
    BaseSettings,
):
    """All settings. Keyword arguments are flags, by field name; a service adds its own environment prefix.

    Raises SettingsError with a message fit to be shown. `_environ` and `_directory` (of the `.env` file) stand in
    for the process's own; `isolated` reads neither, and no config file.
    """

    model_config = SettingsConfigDict(extra="forbid", frozen=True, env_prefix="HOLDFAST_")

    _around: Surroundings = PrivateAttr()

    def __init__(
        self,
        *,
        _environ: Mapping[str, str] | None = None,
        _directory: Path | None = None,
        _isolated: bool = False,
        **flags: Any,
    ) -> None:
        cls = type(self)
        around = Surroundings(
            cls.model_fields,
            cls.model_config.get("env_prefix", ""),
            flags,
            environ=_environ if _environ is not None else {} if _isolated else default_environ(),
            directory=None if _isolated else _directory or Path(),
        )
        token = surroundings.set(around)
        try:
            super().__init__()
        except ValidationError as error:
            raise SettingsError(complaint(error, around, cls.model_fields)) from None
        finally:
            surroundings.reset(token)

    @classmethod
    def isolated(cls, **flags: Any) -> Self:
        """Defaults and what is given here, nothing from outside: for tests and embedding."""
        return cls(_isolated=True, **flags)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return tuple(_LayerSource(settings_cls, layer) for layer in surroundings.get().layers())

    def model_post_init(self, context: Any, /) -> None:
        self._around = surroundings.get()

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        # A replay may not be rarer than a sweep; the shorter one is meant, not an error. Frozen, hence the way around.
        object.__setattr__(
            self, "txn_replay_interval_s", min(self.txn_replay_interval_s, self.sweeper_interval_s)
        )
        found = list(problems(self))
        if found:
            raise ValueError("\n".join(found))
        return self

    def check_start(self) -> None:
        """Raise SettingsError when a server with these settings cannot start on this machine."""
        try:
            found = list(start_problems(self))
        except OSError as error:
            found = [f"{self.subject('bundle')}: {self.bundle} cannot be read: {error.strerror}"]
        if found:
            raise SettingsError("\n".join(found))

    def origin(self, name: str) -> str:
        """Who set a field: `flag`, `env NAME`, `.env NAME`, `file PATH` or `default`."""
        return self._around.origin(name).label

    def is_set(self, variable: str) -> bool:
        """Whether the environment has a variable of this name."""
        return bool(self._around.environ.get(variable))

    def subject(self, name: str) -> str:
        """The same for messages: `flag --max-ttl`, `environment variable HOLDFAST_MAX_TTL`, …"""
        return self._around.origin(name).subject

    def asks_for(self, positive: Literal["mtls", "storage-encryption"]) -> bool:
        """Whether this was turned on explicitly, rather than left to its default."""
        return self._around.asks_for(positive)

    @property
    def config_file(self) -> Path | None:
        """The file that was read, if any."""
        return self._around.config_file

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the listener."""
        return is_local_listener(self.listen_proto, self.listen)

    @property
    def has_bundle(self) -> bool:
        """Whether there is one, in a folder that this process may enter."""
        try:
            return self.bundle.is_file()
        except OSError:
            return False

    @property
    def is_mtls_on(self) -> bool:
        """Mutual TLS is on when there is a bundle and no setting turned it off."""
        return not self.mtls_disabled and self.listen_proto != "unix" and self.has_bundle

    @property
    def is_storage_encryption_on(self) -> bool:
        """Storage is encrypted when there is a bundle and no setting turned it off."""
        return not self.storage_encryption_disabled and self.has_bundle

    def log_ignored(self, log: Logger) -> None:
        """One line for all settings that were given and have no effect here."""
        ignored = [
            flag.name
            for name, flag in self.flags().items()
            if flag.is_ignored and self.origin(name) != "default"
        ]
        if ignored:
            log.info("settings.ignored", names=ignored)

    @classmethod
    def flags(cls) -> dict[str, Flag]:
        """The flag of every field."""
        return {name: flag_of(info) for name, info in cls.model_fields.items()}

    def shown(self) -> dict[str, object]:
        """Every key of the config file with its value as people write it, secrets masked."""
        return {
            flag_of(info).key: shown(info, getattr(self, name))
            for name, info in type(self).model_fields.items()
        }

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        # A store URL may hold a password, so nothing is shown raw.
        return iter((key, value) for key, value in self.shown().items())
