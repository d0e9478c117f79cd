"""Settings of the process that runs actions."""
# ruff: noqa: RUF009  The calls in the defaults below are the declarations; they share no state.

import os
import types
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from attune.runtime.settings.declare import Rules, computed_setting, section, setting
from attune.runtime.settings.environments import EnvironmentSettings
from attune.runtime.settings.limits import LimitSettings
from attune.runtime.settings.runtimes import ContainerEngine, HttpSettings


class Isolation(StrEnum):
    """How far an action's process is kept away from the machine it runs on."""

    AUTO = "auto"
    NONE = "none"
    USER = "user"
    NAMESPACE = "namespace"


def default_capacity() -> int:
    """Eight executions per processor, and at least 32: most scripts wait more than they compute."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(32, 8 * (cores or 1))


def _no_labels() -> Mapping[str, str]:
    return types.MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """The process that runs actions."""

    heartbeat_interval: float = setting(
        10.0, Rules(doc="Seconds between two heartbeats; a lease lasts three of them.", minimum=0.2, maximum=300)
    )
    shutdown_timeout: float = setting(
        30.0, Rules(doc="Seconds a stopping worker waits for what still runs.", minimum=0, maximum=86_400)
    )
    capacity: int = computed_setting(
        default_capacity,
        Rules(
            doc="Executions one worker runs at the same time.",
            minimum=1,
            maximum=10_000,
            default_shown="8 per processor, at least 32",
        ),
    )
    isolation: Isolation = setting(
        Isolation.AUTO,
        Rules(doc="The least that every action gets; `auto` is `user` where the worker is root and `none` elsewhere."),
    )
    run_as: str | None = setting(
        None,
        Rules(
            doc="Account, or its number, that actions run under when the worker runs as root.", default_shown="nobody"
        ),
    )
    limits: LimitSettings = section(LimitSettings)
    artifact_bytes_max: int = setting(
        64 * 1024 * 1024,
        Rules(
            doc="Largest result; one above 1 MiB becomes an artifact, one above this fails the execution.",
            minimum=1_048_576,
            maximum=1_073_741_824,
        ),
    )
    labels: Mapping[str, str] = computed_setting(
        _no_labels, Rules(doc="Labels that actions may ask for, as `name: value`.")
    )
    python: Path | None = setting(
        None,
        Rules(
            doc="Interpreter for Python actions; one that is named has no substitute.",
            default_shown="the worker's own, or /usr/bin/python3 where actions cannot reach that",
        ),
    )
    node: Path | None = setting(
        None,
        Rules(
            doc="Node for Node actions, with its npm beside it; one that is named has no substitute.",
            default_shown="the one on the search path",
        ),
    )
    fork_server: bool = setting(
        default=True,
        rules=Rules(doc="Whether Python actions start as copies of a process that has already started."),
    )
    environments: EnvironmentSettings = section(EnvironmentSettings)
    container: ContainerEngine = setting(
        ContainerEngine.AUTO,
        Rules(
            doc="What makes the containers of `container` actions; `auto` is the first of podman and docker that works."
        ),
    )
    http: HttpSettings = section(HttpSettings)
