"""What a run says at its end: which faults ran, how soon it recovered, what is broken, and one line of JSON."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from tests.chaos.judge import Record, Verdict
from tests.chaos.kinds import Kind
from tests.chaos.nemesis import Nemesis, Strike
from tests.chaos.plan import KILL, Plan

SHOWN_MAX = 12
PROMISES = ("lost", "duplicated", "order", "limit", "leaked")


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The figures of one seed, or of several together."""

    seed: int
    transport: str
    seeds: int = 1
    seconds: float = 0.0
    executions: int = 0
    # Requests that were repeated because nobody knew what had become of them.
    unknown: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    faults: Counter[Kind] = field(default_factory=Counter)
    unavailable: Mapping[Kind, str] = field(default_factory=dict)
    # From the end of a fault to the end of the first execution that was asked for afterwards and succeeded.
    recoveries: Mapping[Kind, Sequence[float]] = field(default_factory=dict)
    quiesce_seconds: Sequence[float] = ()
    mended: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: Summary) -> Summary:
        recoveries = defaultdict(list, {kind: list(each) for kind, each in self.recoveries.items()})
        for kind, each in other.recoveries.items():
            recoveries[kind] += each
        return Summary(
            seed=self.seed,
            transport=self.transport,
            seeds=self.seeds + other.seeds,
            seconds=self.seconds + other.seconds,
            executions=self.executions + other.executions,
            unknown=self.unknown + other.unknown,
            statuses=self.statuses + other.statuses,
            codes=self.codes + other.codes,
            kills=self.kills + other.kills,
            faults=self.faults + other.faults,
            unavailable={**self.unavailable, **other.unavailable},
            recoveries=dict(recoveries),
            quiesce_seconds=[*self.quiesce_seconds, *other.quiesce_seconds],
            mended=self.mended + other.mended,
            errors=self.errors + other.errors,
            broken=self.broken + other.broken,
        )

    @property
    def ok(self) -> bool:
        return not self.broken.total()

    def table(self) -> Iterator[str]:
        """Each kind of fault: how often it ran and how soon work flowed again, or why it could not run."""
        yield f"{'fault':<18} {'times':>5}  {'recovery p50':>12} {'p99':>8}"
        for kind in Kind:
            if kind in self.unavailable:
                yield f"{kind:<18} could not run: {self.unavailable[kind]}"
                continue
            times = sorted(self.recoveries.get(kind, ()))
            shown = f"{_part(times, 0.5):>10.2f} s {_part(times, 0.99):>6.2f} s" if times else ""
            drawn = "" if self.faults[kind] else "not drawn by these seeds"
            yield f"{kind:<18} {self.faults[kind]:>5}  {shown}{drawn}".rstrip()

    def line(self) -> str:
        """The last line, for machines."""
        return json.dumps(
            {
                "seed": self.seed,
                "minutes": round(self.seconds / 60, 1),
                "transport": self.transport,
                "executions": self.executions,
                "kills": dict(sorted(self.kills.items())),
                **{promise: self.broken[promise] for promise in PROMISES},
                "ok": self.ok,
                "seeds": self.seeds,
                "other": self.broken["ends"] + self.broken["other"],
                "faults": {kind: self.faults[kind] for kind in Kind if self.faults[kind]},
                "statuses": dict(self.statuses),
                "codes": dict(self.codes),
                "unknown_answers": self.unknown,
                "mended": dict(self.mended),
                "errors": dict(self.errors),
                "quiesce_seconds_max": round(max(self.quiesce_seconds, default=0.0), 1),
            }
        )


def summarise(plan: Plan, nemesis: Nemesis, record: Record, verdict: Verdict, *, quiesce_seconds: float) -> Summary:
    """The figures of one seed."""
    fired = nemesis.stage.reached()
    killed = [name for name, action in fired.items() if action == KILL]
    faults: Counter[Kind] = Counter(strike.fault.kind for strike in nemesis.strikes)
    # One that was let loose counts when it has fired.
    faults[Kind.FAILPOINT] = len(fired)
    kinds = ("lost", "duplicated", "order", "limit", "leaked", "ends", "other")
    return Summary(
        seed=plan.seed,
        transport=plan.transport,
        executions=len(record.executions),
        statuses=Counter(row.status for row in record.executions),
        codes=Counter(row.code for row in record.executions if row.code),
        kills=nemesis.kills + Counter({"failpoint": len(killed)}),
        faults=faults,
        unavailable=nemesis.unavailable(),
        recoveries=_recoveries(nemesis.strikes, record),
        quiesce_seconds=[quiesce_seconds],
        mended=Counter(record.mended),
        errors=Counter(record.errors),
        broken=Counter({kind: len(getattr(verdict, kind)) for kind in kinds}),
    )


def _recoveries(strikes: Sequence[Strike], record: Record) -> dict[Kind, list[float]]:
    """Of each fault, unless another one came before work flowed again: then nobody knows whose the delay was."""
    succeeded = [row for row in record.executions if row.status == "succeeded" and row.ended_at is not None]
    found: dict[Kind, list[float]] = defaultdict(list)
    for strike in strikes:
        if strike.fault.kind is Kind.FAILPOINT:
            continue
        ends = [row.ended_at for row in succeeded if row.ended_at is not None and row.created >= strike.healed]
        again = min(ends, default=None)
        if again is not None and not any(_meets(other, strike.healed, again) for other in strikes):
            found[strike.fault.kind].append((again - strike.healed).total_seconds())
    return dict(found)


def _meets(other: Strike, begin: datetime, end: datetime) -> bool:
    return other.began < end and other.healed > begin


def shown(verdict: Verdict) -> Iterator[str]:
    """What is broken, a dozen of each."""
    for promise in (*PROMISES, "ends", "other"):
        faults: list[str] = getattr(verdict, promise)
        for fault in faults[:SHOWN_MAX]:
            yield f"BROKEN {promise}: {fault}"
        if len(faults) > SHOWN_MAX:
            yield f"BROKEN {promise}: and {len(faults) - SHOWN_MAX} more"


def _part(times: Sequence[float], part: float) -> float:
    return times[min(len(times) - 1, int(len(times) * part))]
