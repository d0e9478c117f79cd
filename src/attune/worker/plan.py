"""What one worker is to be, and what it stands on."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from attune.domain.definitions import Isolation
from attune.domain.http.allowed import Allowed, BadAllowList, parse_allow_list
from attune.runtime.home import Home
from attune.runtime.metrics import Metrics
from attune.runtime.settings import Settings
from attune.runtime.supervise import CannotStart
from attune.runtime.vault import WITHOUT_KEY, Vault
from attune.storage.database import Database
from attune.transport.limits import Limits
from attune.transport.protocol import Transport
from attune.worker.runners.protocol import ARTIFACT_BYTES_MAX

# Between TERM and KILL.
GRACE_SECONDS: Final = 5.0
# One transaction reports at most this many endings.
REPORTED_MAX: Final = 500
CONTAINER_OFF: Final = "off"


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
    # None takes the worker's own, if actions can.
    python: Path | None = None
    # None takes the one on the search path.
    node: Path | None = None
    fork_server: bool = True
    environment_seconds_max: float = 600.0
    environment_unused_days_max: float = 14.0
    grace_seconds: float = GRACE_SECONDS
    limits: Limits = field(default_factory=Limits)
    report_batch_max: int = REPORTED_MAX
    artifact_bytes_max: int = ARTIFACT_BYTES_MAX
    # None is the strongest level that needs no asking.
    isolation: Isolation | None = None
    run_as: str | None = None
    bounds: Bounds = field(default_factory=Bounds)
    # auto, podman, docker or off.
    container: str = CONTAINER_OFF
    http_allow: Sequence[Allowed] = ()

    @property
    def environments(self) -> Path:
        """Where what packs need besides their own files is built."""
        return Home(self.home).environments


def _read_allow_list(text: str | None) -> Sequence[Allowed]:
    try:
        return parse_allow_list(text)
    except BadAllowList as error:
        raise CannotStart(str(error)) from None


def plan_worker(settings: Settings, home: Home, *, name: str, version: str, limits: Limits) -> WorkerPlan:
    """What the settings ask of a worker of this name."""
    wanted, rabbitmq = settings.worker, settings.message_queue.rabbitmq
    return WorkerPlan(
        name=name,
        home=home.root,
        packs=home.packs,
        scratch=home.run / "work" / name,
        capacity=wanted.capacity,
        heartbeat_seconds=wanted.heartbeat_interval,
        shutdown_seconds=wanted.shutdown_timeout,
        queue_ttl_ms=rabbitmq.worker_queue_ttl_ms,
        dead_letters=rabbitmq.dead_letter.enabled,
        version=version,
        labels=wanted.labels,
        api_url=f"http://{settings.api.host}:{settings.api.port}",
        limits=limits,
        report_batch_max=settings.executor.batch_max,
        artifact_bytes_max=wanted.artifact_bytes_max,
        isolation=None if wanted.isolation == "auto" else Isolation(wanted.isolation),
        run_as=wanted.run_as,
        bounds=Bounds(**asdict(wanted.limits)),
        python=wanted.python,
        node=wanted.node,
        fork_server=wanted.fork_server,
        environment_seconds_max=wanted.environments.build_timeout,
        environment_unused_days_max=wanted.environments.unused_days,
        container=wanted.container,
        http_allow=_read_allow_list(wanted.http.allow),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerParts:
    """What a worker stands on; whoever builds them closes them."""

    plan: WorkerPlan
    database: Database
    transport: Transport
    metrics: Metrics
    # Opens secret parameters.
    vault: Vault = WITHOUT_KEY
