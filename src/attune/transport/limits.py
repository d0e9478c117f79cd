"""How much a consumer takes at once, and how often it tries what fails."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one consumer; the defaults are those of the settings."""

    # 1 means one by one.
    batch_max: int = 100
    # At this many failed deliveries a message is parked.
    deliveries_max: int = 5
    # Older than this without being handled, a message may be the reason: it runs alone.
    suspect_seconds: float = 30.0
    # The pause after a first failed delivery; it doubles with each further one.
    backoff_seconds: float = 1.0
    # The same for a message whose type only a newer version knows, which may be on its way.
    unknown_type_seconds: float = 10.0
    # How many messages a broker may hand over before they are acknowledged.
    prefetch: int = 200
