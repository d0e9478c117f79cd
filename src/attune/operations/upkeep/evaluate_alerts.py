"""Looks whether anything is worth a person's attention: each thing is told once when it begins and once when it ends.

Every replica looks; one at a time, and none again just after another.
"""

from collections.abc import Iterable

from attune.domain.alerts.catalogue import ALERTS
from attune.domain.alerts.episodes import Episode, Turn, evaluate
from attune.domain.alerts.readings import Readings, remember
from attune.runtime.failpoints import afailpoint
from attune.storage.alerting import episodes, readings, samples
from attune.storage.alerting.readings import LINES_MAX
from attune.storage.tx import Tx

# Two looks lie at least this far apart, whoever looks.
APART_SECONDS = 5.0
MINUTE, FIVE_MINUTES, TEN_MINUTES = 60.0, 300.0, 600.0
NOTHING = Turn()


async def evaluate_alerts(tx: Tx, *, default_length_max: int) -> Turn:
    """Read how things stand, compare with what stands open, and write what that changes."""
    if not await episodes.try_lock(tx):
        return NOTHING
    now = await samples.find_due(tx, seconds=APART_SECONDS)
    if now is None:
        return NOTHING
    standing = await episodes.list_open(tx)
    found = await _read(tx, standing, default_length_max=default_length_max)
    turn = evaluate(ALERTS, found, standing, now=now)
    await afailpoint("sweep.alerts.evaluated")
    await samples.insert(tx, found.present)
    await samples.delete_old(tx)
    # What began to fire and what is over are in `turn.fired` and `turn.resolved`: whoever announces it does so here.
    if kept := [*turn.pending, *turn.fired, *turn.still]:
        await episodes.save_open(tx, kept)
    if turn.resolved:
        await episodes.resolve(tx, turn.resolved, now=now)
    if turn.dropped:
        await episodes.delete_pending(tx, turn.dropped)
    return turn


async def _read(tx: Tx, standing: Iterable[Episode], *, default_length_max: int) -> Readings:
    about = {each.subject.removeprefix("line:") for each in standing if each.subject.startswith("line:")}
    lines = await readings.list_lines(tx, also=sorted(map(int, about)), default_length_max=default_length_max)
    past = await samples.list_past(tx, [MINUTE, FIVE_MINUTES, TEN_MINUTES])
    return Readings(
        platform=await readings.read_platform(tx),
        lines=lines,
        quarantined=await readings.list_quarantined(tx),
        present=remember(
            lines,
            timeouts=await readings.count_timeouts(tx),
            actions=await readings.count_ends(tx),
            lines_max=LINES_MAX,
        ),
        minute_ago=past.get(MINUTE),
        five_minutes_ago=past.get(FIVE_MINUTES),
        ten_minutes_ago=past.get(TEN_MINUTES),
    )
