"""Dead letters: what died on its way, what became of it, and sending it again or dropping it."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from attune.api.bodies import NoBody
from attune.api.endpoint import AnyEndpoint, Call, Endpoint, Method, NoQuery, Reply
from attune.api.pages import ID_MAX, Page, make_page, read_cursor
from attune.api.schemas.dead_letters import (
    DeadLetterQuery,
    DeadLetterSelection,
    StatsAnswer,
    StatsQuery,
    VerdictAnswer,
    VerdictsAnswer,
)
from attune.domain.endings.dead_letters import Verdict
from attune.domain.errors import NotFound
from attune.domain.messages import DeadLetter
from attune.domain.permission import Scope, parse_permission
from attune.operations.access.write_audit import Actor
from attune.operations.dead_letters.drop_dead_letters import drop_dead_letters
from attune.operations.dead_letters.replay_dead_letters import replay_dead_letters
from attune.storage.tx import Tx
from attune.storage.views import dead_letters
from attune.storage.views.dead_letters import DeadLetterFilter

READ: Final = parse_permission("dead_letters:read")
REPLAY: Final = parse_permission("dead_letters:replay")
DROP: Final = parse_permission("dead_letters:drop")

# Groups shown; an installation may have a worker for every machine there is.
GROUPS_MAX: Final = 1000


class Decide(Protocol):
    """What is done with dead letters on a person's word."""

    def __call__(self, tx: Tx, dead_letter_ids: Sequence[int], *, by: Actor) -> Awaitable[list[Verdict]]: ...


async def list_dead_letters(call: Call[DeadLetterQuery, NoBody]) -> Reply:
    query = call.query
    (before,) = read_cursor(query.cursor, (ID_MAX,))
    wanted = DeadLetterFilter(
        open=query.open,
        outcome=query.outcome,
        reason=query.reason,
        type=query.type,
        action_ref=query.action_ref,
        worker_id=query.worker_id,
        execution_id=query.execution_id,
        since=query.since,
    )
    async with call.services.parts.database.reading() as tx:
        ids = await dead_letters.list_ids(tx, wanted, before=before, limit=query.limit + 1)
        found = await dead_letters.list_by_id(tx, ids)
    return Reply(value=make_page(found, limit=query.limit, place_of=lambda letter: [letter.id]))


async def get_dead_letter(call: Call[NoQuery, NoBody]) -> Reply:
    dead_letter_id = call.path_id("dead_letter_id")
    async with call.services.parts.database.reading() as tx:
        letter = await dead_letters.find(tx, dead_letter_id)
    if letter is None:
        raise _unknown(dead_letter_id)
    return Reply(value=letter)


def _unknown(dead_letter_id: int) -> NotFound:
    return NotFound(f"dead letter {dead_letter_id} does not exist; they are kept for a limited time")


async def get_stats(call: Call[StatsQuery, NoBody]) -> Reply:
    group_by = sorted(set(call.query.group_by.split(",")))
    async with call.services.parts.database.reading() as tx:
        depth = await dead_letters.measure(tx)
        groups = await dead_letters.count_groups(tx, group_by, since=call.query.since, limit=GROUPS_MAX)
    return Reply(
        value=StatsAnswer(
            depth=depth.depth,
            open=depth.open,
            unhandled=depth.unhandled,
            last_minute=depth.last_minute,
            groups=groups,
        )
    )


def decide_one(decide: Decide) -> Callable[[Call[NoQuery, NoBody]], Awaitable[Reply]]:
    """Answers for one dead letter, by its id."""

    async def respond(call: Call[NoQuery, NoBody]) -> Reply:
        dead_letter_id = call.path_id("dead_letter_id")
        async with call.services.parts.database.transaction() as tx:
            verdicts = await decide(tx, [dead_letter_id], by=call.actor)
        if not verdicts:
            raise _unknown(dead_letter_id)
        return Reply(value=_answer(verdicts[0]))

    return respond


def decide_selected(decide: Decide) -> Callable[[Call[DeadLetterSelection, NoBody]], Awaitable[Reply]]:
    """Answers for those of a selection that wait for a person."""

    async def respond(call: Call[DeadLetterSelection, NoBody]) -> Reply:
        query = call.query
        wanted = DeadLetterFilter(
            open=True,
            reason=query.reason,
            type=query.type,
            action_ref=query.action_ref,
            worker_id=query.worker_id,
            execution_id=query.execution_id,
            since=query.since,
        )
        async with call.services.parts.database.transaction() as tx:
            ids = await dead_letters.list_ids(tx, wanted, before=ID_MAX, limit=query.limit + 1)
            verdicts = await decide(tx, ids[: query.limit], by=call.actor)
        answers = [_answer(verdict) for verdict in verdicts]
        return Reply(value=VerdictsAnswer(items=answers, more=len(ids) > query.limit))

    return respond


def _answer(verdict: Verdict) -> VerdictAnswer:
    return VerdictAnswer(
        id=verdict.dead_letter_id, effect=verdict.effect, outcome=verdict.outcome, message=verdict.message
    )


ENDPOINTS: Final[tuple[AnyEndpoint, ...]] = (
    Endpoint(
        method=Method.GET,
        path="/api/v1/dead-letters",
        name="list_dead_letters",
        summary="Messages that died, the newest first, with what became of them.",
        permission=READ,
        scope=Scope.INSTALLATION,
        query=DeadLetterQuery,
        answer=Page[DeadLetter],
        respond=list_dead_letters,
    ),
    Endpoint(
        method=Method.GET,
        path="/api/v1/dead-letters/stats",
        name="get_dead_letter_stats",
        summary="How many wait, and how many died by action, worker or reason.",
        permission=READ,
        scope=Scope.INSTALLATION,
        query=StatsQuery,
        answer=StatsAnswer,
        respond=get_stats,
    ),
    Endpoint(
        method=Method.GET,
        path="/api/v1/dead-letters/{dead_letter_id}",
        name="get_dead_letter",
        summary="One dead letter.",
        permission=READ,
        scope=Scope.INSTALLATION,
        answer=DeadLetter,
        also=(404,),
        respond=get_dead_letter,
    ),
    Endpoint(
        method=Method.POST,
        path="/api/v1/dead-letters/{dead_letter_id}/replay",
        name="replay_dead_letter",
        summary="Send a dead letter again; what is over stays over, and the answer says so.",
        permission=REPLAY,
        scope=Scope.INSTALLATION,
        answer=VerdictAnswer,
        also=(404,),
        respond=decide_one(replay_dead_letters),
    ),
    Endpoint(
        method=Method.POST,
        path="/api/v1/dead-letters/{dead_letter_id}/drop",
        name="drop_dead_letter",
        summary="Give a dead letter up; asking again changes nothing.",
        permission=DROP,
        scope=Scope.INSTALLATION,
        answer=VerdictAnswer,
        also=(404,),
        respond=decide_one(drop_dead_letters),
    ),
    Endpoint(
        method=Method.POST,
        path="/api/v1/dead-letters:replay",
        name="replay_dead_letters",
        summary="Send those again that wait for a person, all or a selection.",
        permission=REPLAY,
        scope=Scope.INSTALLATION,
        query=DeadLetterSelection,
        answer=VerdictsAnswer,
        respond=decide_selected(replay_dead_letters),
    ),
    Endpoint(
        method=Method.POST,
        path="/api/v1/dead-letters:drop",
        name="drop_dead_letters",
        summary="Give those up that wait for a person, all or a selection.",
        permission=DROP,
        scope=Scope.INSTALLATION,
        query=DeadLetterSelection,
        answer=VerdictsAnswer,
        respond=decide_selected(drop_dead_letters),
    ),
)
