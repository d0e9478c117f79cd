"""What a seed stands for: a fleet, a workload, and the faults that befall it, as a list that can be shortened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from attune.domain.definitions import RetryPolicy, Runner
from tests.simulation.whole.broker import Weather
from tests.simulation.whole.rows import ActionRow, PolicyRow
from tests.simulation.whole.services import WorkerPlan

# Faults fall within this time; then everything is mended and must come to rest.
HORIZON_SECONDS = 60.0
SUBMISSIONS = (6, 12)
FAULTS_MAX = 6
DEEDS_MAX = 6
# So many seeds have no faults at all: there the nets must have nothing to do.
CALM_SHARE = 0.25
# Each kind of fault and deed is part of so many seeds: what is always there hides what would happen without it.
KIND_SHARE = 0.35
# So much of what happens does so within a moment of something else.
TOGETHER_SHARE = 0.4
TOGETHER_SECONDS = 0.1

# What people do. None of it is a fault.
DEEDS = ("cancel", "force", "pause", "clear", "drain", "cordon", "limit", "leave")
# What befalls processes, the database and the broker.
FAULTS = (
    "kill worker",
    "kill executor",
    "stop worker",
    "stop executor",
    "cut worker",
    "cut executor",
    "drop link",
    "wipe broker",
    "broker away",
    "restart database",
    "clock jump",
)
# What befalls messages and answers.
WEATHERS = ("lost", "repeated", "unconfirmed", "slow", "no answer")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Event:
    """One thing that happens; the numbers choose among what there is then."""

    at: float
    kind: str
    which: int = 0
    how: int = 0

    def __str__(self) -> str:
        return f"{self.at:7.2f}  {self.kind} ({self.which}, {self.how})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that a run depends on."""

    seed: int
    events: tuple[Event, ...]
    workers: tuple[WorkerPlan, ...]
    executors: int = 2
    external: bool = True
    interleaving: float = 0.0
    weather: Weather
    lost_answers: float = 0.0
    horizon_seconds: float = HORIZON_SECONDS
    # Faults come from elsewhere than the events.
    troubled: bool = False

    @property
    def calm(self) -> bool:
        """Nothing but work and people."""
        still = self.weather == Weather() and not self.lost_answers and not self.troubled
        return still and not any(event.kind in FAULTS for event in self.events)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """What a search for one kind of mistake makes happen for certain; the rest is drawn as ever."""

    kinds: tuple[str, ...] = ()
    weathers: tuple[str, ...] = ()
    calm: bool | None = None
    interleaving: float | None = None
    workers_min: int = 1
    # Longer, where something has to outlast a lease.
    horizon_seconds: float = HORIZON_SECONDS


def make_plan(seed: int, aim: Aim = Aim()) -> Plan:  # noqa: B008 — it never changes
    dice = Random(seed)
    calm = dice.random() < CALM_SHARE if aim.calm is None else aim.calm
    faults = [] if calm else [kind for kind in FAULTS if dice.random() < KIND_SHARE]
    weathers = set() if calm else {kind for kind in WEATHERS if dice.random() < KIND_SHARE}
    weathers |= set(aim.weathers)
    deeds = [kind for kind in DEEDS if dice.random() < KIND_SHARE]
    kinds = ["submit"] * dice.randint(*SUBMISSIONS)
    kinds += [dice.choice(deeds) for _ in range(dice.randint(1, DEEDS_MAX) if deeds else 0)]
    kinds += [dice.choice(faults) for _ in range(dice.randint(1, FAULTS_MAX) if faults else 0)]
    kinds += aim.kinds
    events: list[Event] = []
    for kind in kinds:
        events.append(_draw(dice, kind, events))
    return Plan(
        seed=seed,
        events=tuple(sorted(events)),
        horizon_seconds=aim.horizon_seconds,
        workers=tuple(_draw_worker(dice, number) for number in range(1, dice.randint(aim.workers_min, 3) + 1)),
        executors=dice.randint(1, 2),
        external=dice.random() < 0.6,
        interleaving=dice.choice([0.0, 0.05, 0.3]) if aim.interleaving is None else aim.interleaving,
        weather=Weather(
            lost=0.2 if "lost" in weathers else 0.0,
            repeated=0.2 if "repeated" in weathers else 0.0,
            unconfirmed=0.2 if "unconfirmed" in weathers else 0.0,
            slow=0.2 if "slow" in weathers else 0.0,
        ),
        lost_answers=0.05 if "no answer" in weathers else 0.0,
    )


def _draw(dice: Random, kind: str, others: Sequence[Event]) -> Event:
    """Mostly early, and often together: what never meets proves nothing."""
    at = dice.random() * (HORIZON_SECONDS if dice.random() < 0.3 else HORIZON_SECONDS / 4)
    if others and dice.random() < TOGETHER_SHARE:
        at = dice.choice(others).at + dice.random() * TOGETHER_SECONDS
    return Event(at=round(at, 3), kind=kind, which=dice.randrange(1000), how=dice.randrange(10**6))


def _draw_worker(dice: Random, number: int) -> WorkerPlan:
    capacity = dice.choice([1, 1, 2, 2, 3, 4])
    return WorkerPlan(name=f"worker-{number}", capacity=capacity, labels={"zone": "a"} if number == 1 else {})


IDEMPOTENT, PLAIN, RETRIED, LINED, ZONED, PARENT, NATIVE = range(1, 8)


def make_actions() -> list[ActionRow]:
    delayed = RetryPolicy(max_attempts=3, delay_seconds=6.0)
    actions = [
        ActionRow(id=PLAIN, ref="plain", retry=RetryPolicy(max_attempts=2), timeout_seconds=20.0),
        ActionRow(id=IDEMPOTENT, ref="idempotent", idempotent=True),
        ActionRow(id=RETRIED, ref="retried", retry=delayed, idempotent=True),
        ActionRow(id=LINED, ref="lined", idempotent=True),
        ActionRow(id=ZONED, ref="zoned", labels={"zone": "a"}, idempotent=True),
        ActionRow(id=PARENT, ref="parent", retry=RetryPolicy(max_attempts=2)),
        ActionRow(id=NATIVE, ref="native", runner=Runner.NATIVE, idempotent=True),
    ]
    for action in actions:
        action.pool = action.requirements.pool
    return actions


def make_policies() -> list[PolicyRow]:
    return [
        PolicyRow(id=1, action_id=RETRIED, limit=1),
        PolicyRow(id=2, action_id=LINED, limit=2),
        PolicyRow(id=3, action_id=ZONED, limit=2, keeps_place=False),
        PolicyRow(id=4, action_id=PARENT, limit=1),
    ]
