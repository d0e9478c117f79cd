"""Settings: every key with its default, where values come from, and how they are shown."""

from attune.runtime.settings.declare import environment_name
from attune.runtime.settings.load import LoadedSettings, find_home, load_settings
from attune.runtime.settings.problems import Problem, SettingsError
from attune.runtime.settings.report import SettingLine, describe_settings, settings_reference
from attune.runtime.settings.resolve import known_settings
from attune.runtime.settings.schema import (
    LogFormat,
    LogLevel,
    Settings,
    TransportKind,
)
from attune.runtime.settings.worker import Isolation

__all__ = [
    "Isolation",
    "LoadedSettings",
    "LogFormat",
    "LogLevel",
    "Problem",
    "SettingLine",
    "Settings",
    "SettingsError",
    "TransportKind",
    "describe_settings",
    "environment_name",
    "find_home",
    "known_settings",
    "load_settings",
    "settings_reference",
]
