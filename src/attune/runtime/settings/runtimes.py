"""Settings of what runs actions, apart from the worker itself."""

from dataclasses import dataclass
from enum import StrEnum

from attune.runtime.settings.declare import Rules, setting


class ContainerEngine(StrEnum):
    """What makes containers for actions; `auto` is the first that works."""

    AUTO = "auto"
    PODMAN = "podman"
    DOCKER = "docker"
    OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """Requests of `http` actions."""

    allow: str | None = setting(
        None,
        Rules(
            doc="What requests may reach beside public addresses, separated by commas: networks and hosts, with or"
            " without a port, such as `10.0.0.0/8, [fd00::/8]:443, intranet.example:8080`.",
            default_shown="public addresses only",
        ),
    )
