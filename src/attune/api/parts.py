"""What the API is built from; the composition fills this in."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from attune.runtime.metrics import Metrics
from attune.runtime.vault import WITHOUT_KEY, Vault
from attune.storage.database import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """Whether a part works, in words fit for everybody, and what to do if it does not."""

    ok: bool
    detail: str
    cure: str = ""
    # A part that is shown but does not decide whether the API takes requests.
    required: bool = True


Check = Callable[[], Awaitable[CheckResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiLimits:
    """The settings the API obeys."""

    body_max_bytes: int = 1_048_576
    wait_max_seconds: float = 60.0
    batch_max: int = 500
    refuse_above: int = 50_000
    accept_below: int = 40_000
    # Of a line whose policy does not say it.
    max_queue_length: int = 10_000
    # Whether numbers of lines are published.
    line_metrics: bool = True
    # How long a request that nobody alive could run waits for a worker before it fails.
    no_worker_grace_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiParts:
    """Everything the API needs from outside."""

    database: Database
    metrics: Metrics
    version: str
    # Where installed packs' files are kept.
    pack_store: Path
    limits: ApiLimits = field(default_factory=ApiLimits)
    checks: Mapping[str, Check] = field(default_factory=dict)
    vault: Vault = WITHOUT_KEY
