"""How a limit moves by itself: up by a little while all goes well, down by a part when it does not."""

from dataclasses import dataclass

from attune.domain.definitions import Adaptive

# A window is one generation of executions, but never fewer, or chance would decide, and never more, or nobody would.
ENDED_MIN = 5
ENDED_MAX = 200
# Up by one, or by this part of a limit for which one is nothing.
INCREASE_PART = 0.1
# Too slow costs a part, which finds the edge again in a few windows; failures cost half, because they harm.
SLOW_FACTOR = 0.8
FAILING_FACTOR = 0.5
# Without a target: this many times the best latency seen is too slow, and a larger part of failures too many.
SLOWER_THAN_BEST = 1.5
FAILURE_RATE = 0.1
# A single failure is no burst, whatever part of a small window it is.
FAILED_MIN = 2
# What was best is slowly forgotten, or an action that has grown slower for good would be held down for ever.
BEST_GROWTH = 1.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What happened under one limit: of those who started under it, how many ended, and how."""

    ended: int
    failed: int
    # The mean of those who succeeded; None if nobody did.
    seconds: float | None
    # All slots were taken at least once; otherwise a higher limit would not have changed anything.
    full: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The limit from now on, the best latency known by now, and why the limit changed; no reason: it did not."""

    limit: int
    best_seconds: float | None
    reason: str = ""


def ended_needed(limit: int) -> int:
    """How many must have ended before a window tells something."""
    return min(ENDED_MAX, max(ENDED_MIN, limit))


def starting_limit(adaptive: Adaptive, limit: int) -> int:
    """Where a limit begins to move. What the best latency is can only be learned from below."""
    return adaptive.min if adaptive.target is None else within_bounds(adaptive, limit)


def within_bounds(adaptive: Adaptive, limit: int) -> int:
    """The nearest limit that the policy allows."""
    return min(adaptive.max, max(adaptive.min, limit))


def decide_limit(adaptive: Adaptive, *, limit: int, best_seconds: float | None, window: Window) -> Decision | None:
    """What a window says about the limit it happened under; None as long as it is too small to say anything."""
    if window.ended < ended_needed(limit):
        return None
    best = _remember_best(best_seconds, window.seconds)
    wanted, reason = _judge(adaptive, limit, best, window)
    moved = within_bounds(adaptive, wanted)
    return Decision(limit=moved, best_seconds=best, reason=f"{reason}: {limit} → {moved}" if moved != limit else "")


def _remember_best(best: float | None, seconds: float | None) -> float | None:
    if best is None or seconds is None:
        return seconds if best is None else best
    return min(seconds, best * BEST_GROWTH)


def _judge(adaptive: Adaptive, limit: int, best: float | None, window: Window) -> tuple[int, str]:
    allowed = FAILURE_RATE
    if adaptive.target is not None and adaptive.target.failure_rate is not None:
        allowed = adaptive.target.failure_rate
    if window.failed >= FAILED_MIN and window.failed > allowed * window.ended:
        told = f"{window.failed} of {window.ended} failed, more than {allowed:.0%}"
        return int(limit * FAILING_FACTOR), told
    slowest, against = _slowest_allowed(adaptive, best)
    if slowest is not None and window.seconds is not None and window.seconds > slowest:
        told = f"latency {window.seconds:.3g} s above {slowest:.3g} s ({against})"
        return min(limit - 1, int(limit * SLOW_FACTOR)), told
    if not window.full:
        return limit, ""
    latency = "" if window.seconds is None else f"latency {window.seconds:.3g} s and "
    return limit + max(
        1, int(limit * INCREASE_PART)
    ), f"{latency}{window.failed} of {window.ended} failed, all slots used"


def _slowest_allowed(adaptive: Adaptive, best: float | None) -> tuple[float | None, str]:
    """A target that names only failures leaves latency alone."""
    if adaptive.target is not None:
        return adaptive.target.latency_seconds, "the target"
    return (None, "") if best is None else (best * SLOWER_THAN_BEST, f"{SLOWER_THAN_BEST:g} times the best seen")
