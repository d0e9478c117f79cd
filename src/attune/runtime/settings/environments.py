"""How workers build and keep what packs need besides their own files."""

from dataclasses import dataclass

from attune.runtime.settings.declare import Rules, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentSettings:
    """What the locks of packs name, built once for each worker's machine."""

    build_timeout: float = setting(
        600.0, Rules(doc="Seconds that building one environment may take.", minimum=1, maximum=86_400)
    )
    unused_days: float = setting(
        14.0,
        # Longer than any action may run, so that nothing in use is removed.
        Rules(doc="Days after which an environment that nobody used is removed.", minimum=8, maximum=3650),
    )
