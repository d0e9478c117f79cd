"""Lines: who waits for what, what happened there, and holding, releasing and emptying them."""

from datetime import timedelta
from math import ceil
from typing import Final

from attune.api.bodies import NoBody
from attune.api.endpoint import AnyEndpoint, Call, Endpoint, Method, NoQuery, Reply
from attune.api.errors import BadRequest
from attune.api.pages import Page, make_page, read_cursor
from attune.api.schemas.lines import (
    AdmissionQuery,
    AgeBucket,
    ClearAnswer,
    HealthAnswer,
    HistoryQuery,
    LineQuery,
    QueueStats,
)
from attune.domain.errors import FieldError, NotFound
from attune.domain.line_health import LineFacts, judge
from attune.domain.permission import Scope, parse_permission
from attune.domain.refs import did_you_mean
from attune.operations.lines.clear_line import clear_all_lines, clear_line
from attune.operations.lines.pause_line import pause_line
from attune.operations.lines.resume_line import resume_line
from attune.runtime.clock import utc_now
from attune.storage import actions as action_rows
from attune.storage.statistics import line_history
from attune.storage.statistics.line_history import LineStep
from attune.storage.tx import Tx
from attune.storage.views import actions, line_statistics, lines
from attune.storage.views.actions import ActionView
from attune.storage.views.line_statistics import Flow, Totals
from attune.storage.views.lines import Admission, LineView

READ: Final = parse_permission("lines:read")
PAUSE: Final = parse_permission("lines:pause")
CLEAR: Final = parse_permission("lines:clear")
STATISTICS: Final = parse_permission("queue_stats:read")

# Bounds of the ages of those who wait, in seconds.
AGE_BOUNDS: Final = (60.0, 300.0, 1800.0, 3600.0)
# Groups shown beside the totals; an action may have a line for every host there is.
GROUPS_MAX: Final = 100
# One answer tells at most this many steps of a history.
STEPS_MAX: Final = 1500


async def list_lines(call: Call[LineQuery, NoBody]) -> Reply:
    query = call.query
    (after,) = read_cursor(query.cursor, (0,))
    async with call.services.parts.database.reading() as tx:
        if query.action_ref is None:
            ids = await lines.list_ids(tx, after=after, limit=query.limit + 1)
        else:
            scopes = await lines.list_scopes(tx, query.action_ref)
            ids = await lines.list_ids_in_scopes(tx, scopes, after=after, limit=query.limit + 1)
        found = await lines.list_by_id(tx, ids)
    return Reply(value=make_page(found, limit=query.limit, place_of=lambda line: [line.id]))


async def get_line(call: Call[NoQuery, NoBody]) -> Reply:
    async with call.services.parts.database.reading() as tx:
        return Reply(value=await _get(tx, call.path_id("line_id")))


async def _get(tx: Tx, line_id: int) -> LineView:
    line = await lines.find(tx, line_id)
    if line is None:
        raise NotFound(f"line {line_id} does not exist; lines that nobody stands in are removed")
    return line


async def list_admissions(call: Call[AdmissionQuery, NoBody]) -> Reply:
    query, line_id = call.query, call.path_id("line_id")
    (after,) = read_cursor(query.cursor, (query.after,))
    async with call.services.parts.database.reading() as tx:
        found = await lines.list_admissions(tx, line_id, after=after, limit=query.limit + 1)
        if not found:
            await _get(tx, line_id)
    return Reply(value=make_page(found, limit=query.limit, place_of=lambda row: [row.n]))


async def pause(call: Call[NoQuery, NoBody]) -> Reply:
    line_id = call.path_id("line_id")
    async with call.services.parts.database.transaction() as tx:
        await pause_line(tx, line_id, by=call.actor)
        return Reply(value=await _get(tx, line_id))


async def resume(call: Call[NoQuery, NoBody]) -> Reply:
    line_id = call.path_id("line_id")
    async with call.services.parts.database.transaction() as tx:
        await resume_line(tx, line_id, by=call.actor)
        return Reply(value=await _get(tx, line_id))


async def clear(call: Call[NoQuery, NoBody]) -> Reply:
    cancelled = await clear_line(call.services.parts.database, call.path_id("line_id"), by=call.actor)
    return Reply(value=ClearAnswer(lines=1, cancelled=cancelled))


async def clear_all(call: Call[NoQuery, NoBody]) -> Reply:
    cancelled = await clear_all_lines(call.services.parts.database, by=call.actor)
    return Reply(value=ClearAnswer(lines=len(cancelled), cancelled=sum(cancelled.values())))


async def get_queue_stats(call: Call[NoQuery, NoBody]) -> Reply:
    ref, length_max = call.path_text("ref"), call.services.parts.limits.max_queue_length
    async with call.services.parts.database.reading() as tx:
        action = await _get_action(tx, ref)
        scopes = await lines.list_scopes(tx, ref)
        totals = await line_statistics.read_totals(tx, scopes, default_length_max=length_max)
        flow = await line_statistics.read_flow(tx, scopes)
        ages = await line_statistics.count_ages(tx, scopes, AGE_BOUNDS)
        groups = await lines.list_by_id(tx, await line_statistics.list_longest_ids(tx, scopes, limit=GROUPS_MAX))
    buckets = [
        AgeBucket(under_seconds=bound, waiting=waiting)
        for bound, waiting in zip([*AGE_BOUNDS, None], ages, strict=True)
    ]
    return Reply(value=_queue_stats(action, totals, flow, groups=groups, buckets=buckets))


async def _get_action(tx: Tx, ref: str) -> ActionView:
    action = await actions.find(tx, ref)
    if action is None:
        raise NotFound(f"action {ref!r} does not exist{did_you_mean(ref, await action_rows.list_refs(tx))}")
    return action


async def list_history(call: Call[HistoryQuery, NoBody]) -> Reply:
    ref, query = call.path_text("ref"), call.query
    now = utc_now()
    since = query.since or now - timedelta(hours=1)
    if (now - since).total_seconds() > query.step * STEPS_MAX:
        least = ceil((now - since).total_seconds() / STEPS_MAX / 60) * 60
        message = f"more than {STEPS_MAX} steps; ask for a later `since`, or for steps of {least} seconds"
        raise BadRequest(message, code="bad_query", fields=[FieldError(pointer="/step", message=message)])
    async with call.services.parts.database.reading() as tx:
        await _get_action(tx, ref)
        scopes = await lines.list_scopes(tx, ref)
        steps = await line_history.list_steps(tx, scopes, since=since, step_seconds=query.step)
    return Reply(value=Page(items=steps, next_cursor=None))


def _queue_stats(
    action: ActionView, totals: Totals, flow: Flow, *, groups: list[LineView], buckets: list[AgeBucket]
) -> QueueStats:
    facts = LineFacts(
        fullness=totals.fullness,
        oldest_seconds=totals.oldest_seconds,
        stuck_lines=totals.stuck_lines,
        paused=totals.paused,
    )
    verdict = judge(facts)
    p50, p95, p99 = flow.waits or (None, None, None)
    return QueueStats(
        action_id=action.id,
        action_ref=action.ref,
        queue_length=totals.queue_length,
        active_count=totals.active_count,
        max_concurrent=totals.max_concurrent,
        oldest_enqueued_at=totals.oldest_enqueued_at,
        total_enqueued=totals.total_enqueued,
        total_completed=totals.total_completed,
        last_updated=totals.last_updated,
        paused=totals.paused,
        lines=totals.lines,
        groups=groups,
        wait_p50=p50,
        wait_p95=p95,
        wait_p99=p99,
        age_histogram=buckets,
        arrivals_per_second=flow.arrivals_per_second,
        completions_per_second=flow.completions_per_second,
        tail_eta_seconds=_tail_eta(totals, flow),
        health=HealthAnswer(verdict=verdict.health, reasons=verdict.reasons),
    )


def _tail_eta(totals: Totals, flow: Flow) -> float | None:
    if not totals.queue_length:
        return 0.0
    if totals.paused or not flow.completions_per_second:
        return None
    return totals.queue_length / flow.completions_per_second


ENDPOINTS: Final[tuple[AnyEndpoint, ...]] = (
    Endpoint(
        method=Method.GET,
        path="/api/v1/lines",
        name="list_lines",
        summary="Lines; with `action_ref` those in which its executions wait.",
        permission=READ,
        scope=Scope.INSTALLATION,
        query=LineQuery,
        answer=Page[LineView],
        respond=list_lines,
    ),
    Endpoint(
        method=Method.POST,
        path="/api/v1/lines:clear",
        name="clear_all_lines",
        summary="Cancel everybody who waits in any line.",
        permission=CLEAR,
        scope=Scope.INSTALLATION,
        answer=ClearAnswer,
        respond=clear_all,
    ),
    Endpoint(
        method=Method.GET,
        path="/api/v1/lines/{line_id}",
        name="get_line",
        summary="One line.",
        permission=READ,
        scope=Scope.INSTALLATION,
        answer=LineView,
        also=(404,),
        respond=get_line,
    ),
    Endpoint(
        method=Method.GET,
        path="/api/v1/lines/{line_id}/admissions",
        name="list_admissions",
        summary="What happened to a line, in order: who joined, was admitted, left, and under which limit.",
        permission=READ,
        scope=Scope.INSTALLATION,
        query=AdmissionQuery,
        answer=Page[Admission],
        also=(404,),
        respond=list_admissions,
    ),
    Endpoint(
        method=Method.POST,
        path="/api/v1/lines/{line_id}/pause",
        name="pause_line",
        summary="Admit nobody until the line is resumed; what runs goes on.",
        permission=PAUSE,
        scope=Scope.INSTALLATION,
        answer=LineView,
        also=(404,),
        respond=pause,
    ),
    Endpoint(
        method=Method.POST,
        path="/api/v1/lines/{line_id}/resume",
        name="resume_line",
        summary="Let a paused line go on, in its order.",
        permission=PAUSE,
        scope=Scope.INSTALLATION,
        answer=LineView,
        also=(404,),
        respond=resume,
    ),
    Endpoint(
        method=Method.POST,
        path="/api/v1/lines/{line_id}/clear",
        name="clear_line",
        summary="Cancel everybody who waits in a line now.",
        permission=CLEAR,
        scope=Scope.INSTALLATION,
        answer=ClearAnswer,
        also=(404,),
        respond=clear,
    ),
    Endpoint(
        method=Method.GET,
        path="/api/v1/actions/{ref}/queue-stats",
        name="get_queue_stats",
        summary="How many wait for an action, how long, how fast it goes on, and whether that is healthy.",
        permission=STATISTICS,
        scope=Scope.INSTALLATION,
        answer=QueueStats,
        also=(404,),
        respond=get_queue_stats,
    ),
    Endpoint(
        method=Method.GET,
        path="/api/v1/actions/{ref}/queue-stats/history",
        name="list_queue_stats_history",
        summary="What happened in an action's lines, step by step; steps in which nothing was are left out.",
        permission=STATISTICS,
        scope=Scope.INSTALLATION,
        query=HistoryQuery,
        answer=Page[LineStep],
        also=(404,),
        respond=list_history,
    ),
)
