"""Settings of this service: all flags of the plane, with `HOLDFAST_LEASES_` as the first environment prefix."""

from pydantic_settings import SettingsConfigDict

from holdfast.common.settings import PlaneSettings


class LeasesSettings(PlaneSettings):
    """`HOLDFAST_LEASES_X` beats `HOLDFAST_X` here, so services on one machine can differ."""

    model_config = SettingsConfigDict(env_prefix="HOLDFAST_LEASES_")
