"""Settings: declared once, read from flags, environment, `.env`, config file and defaults, in that order."""

from holdfast.common.settings.origin import SettingsError
from holdfast.common.settings.plane import PlaneSettings

__all__ = ["PlaneSettings", "SettingsError"]
