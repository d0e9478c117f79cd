"""What a pack declares: the pack itself, its actions, and the policies that hold actions in line."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from attune.domain.json_values import Json

TIMEOUT_SECONDS_DEFAULT = 600


class Runner(StrEnum):
    """What runs an action. The executor itself handles the last two; the others need a worker."""

    SHELL = "shell"
    PYTHON = "python"
    NODE = "node"
    CONTAINER = "container"
    HTTP = "http"
    NATIVE = "native"
    WORKFLOW = "workflow"
    INQUIRY = "inquiry"


class ParameterDelivery(StrEnum):
    """Where a script finds its parameters."""

    STDIN = "stdin"
    FILE = "file"


class ParameterFormat(StrEnum):
    """How a script finds its parameters written."""

    JSON = "json"
    YAML = "yaml"
    DOTENV = "dotenv"


class OutputFormat(StrEnum):
    """How a script's standard output becomes a result."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"
    JSONL = "jsonl"


class Isolation(StrEnum):
    """How far a running action is kept from the worker, weakest first."""

    NONE = "none"
    USER = "user"
    NAMESPACE = "namespace"
    CONTAINER = "container"


class ContainerNetwork(StrEnum):
    """What a container can reach."""

    NONE = "none"
    BRIDGE = "bridge"


class Pull(StrEnum):
    """Whether an image that the worker's machine has not got is fetched."""

    NEVER = "never"
    MISSING = "missing"


CONTAINER_MEMORY_MB_DEFAULT = 512
CONTAINER_PROCESSES_DEFAULT = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerLimits:
    """What a container may reach and use; without `cpus` as much computing time as there is."""

    network: ContainerNetwork = ContainerNetwork.NONE
    memory_mb: int = CONTAINER_MEMORY_MB_DEFAULT
    processes: int = CONTAINER_PROCESSES_DEFAULT
    cpus: float | None = None
    pull: Pull = Pull.NEVER


class Backoff(StrEnum):
    """How the delay grows from one try to the next."""

    CONSTANT = "constant"
    LINEAR = "linear"
    EXPONENTIAL = "exponential"


class RetryReason(StrEnum):
    """An ending that may be tried again; exit codes stand beside these as plain numbers."""

    FAILED = "failed"
    TIMEOUT = "timeout"
    WORKER_LOST = "worker_lost"


class OnWorkerLost(StrEnum):
    """What becomes of an attempt whose worker vanished, where the action says so itself."""

    RETRY = "retry"
    FAIL = "fail"


RETRY_ON_DEFAULT: frozenset[RetryReason | int] = frozenset({RetryReason.FAILED, RetryReason.TIMEOUT})


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and when an action is tried again; one attempt means never."""

    max_attempts: int = 1
    delay_seconds: float = 0.0
    backoff: Backoff = Backoff.CONSTANT
    max_delay_seconds: float = 300.0
    retry_on: frozenset[RetryReason | int] = RETRY_ON_DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionDefinition:
    """One thing that can be run.

    What is run stands in exactly one of three places: `entry_point` (a file beside the action's file, or the name
    of a native function), `command` (a fixed shell command) or `command_from` (the parameter that holds the command).
    A container may leave it to its image, and `http` has a request instead.
    """

    ref: str
    runner: Runner
    label: str = ""
    description: str = ""
    entry_point: str | None = None
    command: str | None = None
    command_from: str | None = None
    image: str | None = None
    container: ContainerLimits | None = None
    http: Mapping[str, Json] | None = None
    parameters: Mapping[str, Json] = field(default_factory=dict)
    output: Mapping[str, Json] | None = None
    parameter_delivery: ParameterDelivery = ParameterDelivery.STDIN
    parameter_format: ParameterFormat = ParameterFormat.JSON
    output_format: OutputFormat = OutputFormat.TEXT
    timeout_seconds: int = TIMEOUT_SECONDS_DEFAULT
    # None follows the setting.
    worker_queue_ttl_seconds: float | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    idempotent: bool = False
    on_worker_lost: OnWorkerLost | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    isolation: Isolation | None = None
    enabled: bool = True


class ScopeKind(StrEnum):
    """What a policy applies to, most specific first."""

    ACTION = "action"
    PACK = "pack"
    GLOBAL = "global"


class LimitMethod(StrEnum):
    """What a concurrency limit does with one execution too many."""

    ENQUEUE = "enqueue"
    CANCEL = "cancel"


class RateMethod(StrEnum):
    """What a rate limit does with one execution too many."""

    DELAY = "delay"
    CANCEL = "cancel"


class OnRetry(StrEnum):
    """Where in its line a delayed retry rejoins."""

    FRONT = "front"
    BACK = "back"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyScope:
    """One action, one pack, or everything; `ref` is None exactly for everything."""

    kind: ScopeKind
    ref: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Concurrency:
    """At most `limit` at once; with `parameters` (dotted paths) one line for each combination of their values."""

    limit: int
    method: LimitMethod = LimitMethod.ENQUEUE
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """At most `max` admissions in any window."""

    max: int
    window_seconds: float
    method: RateMethod = RateMethod.DELAY


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """At most `per_day` admissions in one UTC day."""

    per_day: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveTarget:
    """What the moving limit tries to hold; at least one is set."""

    failure_rate: float | None = None
    latency_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Adaptive:
    """A concurrency limit that moves between two bounds; without a target it watches failures and the best latency."""

    min: int
    max: int
    target: AdaptiveTarget | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDefinition:
    """Who may run when: limits on one scope.

    `max_queue_length` and `queue_timeout_seconds` of None follow the executor's settings.
    """

    ref: str
    scope: PolicyScope
    label: str = ""
    description: str = ""
    concurrency: Concurrency | None = None
    rate_limit: RateLimit | None = None
    quota: Quota | None = None
    adaptive: Adaptive | None = None
    max_queue_length: int | None = None
    queue_timeout_seconds: int | None = None
    priority: int = 0
    on_retry: OnRetry = OnRetry.FRONT
    enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonOptions:
    """How a pack's Python actions are started: as copies of a process that has loaded `preload`, or each afresh."""

    fork_server: bool = True
    preload: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PackDefinition:
    """A pack and everything it declares."""

    ref: str
    version: str
    label: str = ""
    description: str = ""
    config_schema: Mapping[str, Json] | None = None
    python: PythonOptions = field(default_factory=PythonOptions)
    actions: tuple[ActionDefinition, ...] = ()
    policies: tuple[PolicyDefinition, ...] = ()
