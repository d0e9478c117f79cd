"""What one worker is to be, and what it stands on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from attune.domain.definitions import Isolation
from attune.runtime.metrics import Metrics
from attune.storage.database import Database
from attune.transport.limits import Limits
from attune.transport.protocol import Transport

# Between TERM and KILL.
GRACE_SECONDS: Final = 5.0
# One transaction reports at most this many endings.
REPORTED_MAX: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What one process of an action may use, and what must be left; 0 is no bound."""

    memory_mb: int = 2048
    cpu_seconds: int = 0
    files: int = 1024
    file_size_mb: int = 10_240
    # Of all actions together where they share an account.
    processes: int = 1024
    # With less than this free, the worker takes no work.
    disk_free_mb: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlan:
    """What one worker is to be."""

    name: str
    home: Path
    packs: Path
    scratch: Path
    capacity: int
    heartbeat_seconds: float
    shutdown_seconds: float
    queue_ttl_ms: int
    version: str
    dead_letters: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)
    api_url: str | None = None
    grace_seconds: float = GRACE_SECONDS
    limits: Limits = field(default_factory=Limits)
    report_batch_max: int = REPORTED_MAX
    # None is the strongest level that needs no asking.
    isolation: Isolation | None = None
    run_as: str | None = None
    bounds: Bounds = field(default_factory=Bounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerParts:
    """What a worker stands on; whoever builds them closes them."""

    plan: WorkerPlan
    database: Database
    transport: Transport
    metrics: Metrics
