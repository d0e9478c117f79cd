"""How well a line does: whether it drains, how full it is, and how long the oldest has waited."""

from dataclasses import dataclass
from enum import StrEnum

HEALTHY_BELOW = 0.1
WARNING_ABOVE = 0.5
CRITICAL_FROM = 0.9
HEALTHY_SECONDS = 5 * 60
WARNING_SECONDS = 30 * 60


class Health(StrEnum):
    """From good to bad."""

    HEALTHY = "healthy"
    BUSY = "busy"  # Neither short enough to be healthy nor long enough to warn.
    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFacts:
    """What the judgement rests on, over the lines of one action."""

    # Of the fullest line: who waits, as a share of how many may.
    fullness: float
    oldest_seconds: float
    # Lines that have a free slot and somebody who waits, and nothing that would explain it.
    stuck_lines: int
    paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The judgement and what led to it."""

    health: Health
    reasons: tuple[str, ...] = ()


def judge(facts: LineFacts) -> Verdict:
    """The worst that holds; a paused line waits on purpose, which is not being stuck."""
    for health, reasons in (
        (Health.CRITICAL, _critical(facts)),
        (Health.WARNING, _warning(facts)),
        (Health.BUSY, _busy(facts)),
    ):
        if reasons:
            return Verdict(health=health, reasons=tuple(reasons))
    return Verdict(health=Health.HEALTHY)


def _critical(facts: LineFacts) -> list[str]:
    reasons = []
    if facts.fullness >= CRITICAL_FROM:
        reasons.append(f"{facts.fullness:.0%} of the longest the line may be")
    if facts.stuck_lines:
        reasons.append("slots are free while others wait")
    return reasons


def _warning(facts: LineFacts) -> list[str]:
    reasons = []
    if facts.fullness > WARNING_ABOVE:
        reasons.append(f"{facts.fullness:.0%} of the longest the line may be")
    if facts.oldest_seconds > WARNING_SECONDS:
        reasons.append(f"the oldest has waited {facts.oldest_seconds / 60:.0f} minutes")
    if facts.paused and facts.fullness > 0:
        reasons.append("paused while others wait")
    return reasons


def _busy(facts: LineFacts) -> list[str]:
    reasons = []
    if facts.fullness >= HEALTHY_BELOW:
        reasons.append(f"{facts.fullness:.0%} of the longest the line may be")
    if facts.oldest_seconds >= HEALTHY_SECONDS:
        reasons.append(f"the oldest has waited {facts.oldest_seconds / 60:.0f} minutes")
    return reasons
