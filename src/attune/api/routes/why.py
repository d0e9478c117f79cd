"""Why an execution is where it is."""

from typing import Final

from attune.api.bodies import NoBody
from attune.api.endpoint import AnyEndpoint, Call, Endpoint, Method, NoQuery, Reply
from attune.api.schemas.why import WhyAnswer
from attune.domain.errors import NotFound
from attune.domain.permission import Scope, parse_permission
from attune.domain.why import explain
from attune.storage.views import why


async def explain_execution(call: Call[NoQuery, NoBody]) -> Reply:
    execution_id = call.path_id("execution_id")
    async with call.services.parts.database.reading() as tx:
        facts = await why.find_facts(tx, execution_id)
    if facts is None:
        raise NotFound(f"execution {execution_id} does not exist")
    told = explain(facts)
    return Reply(value=WhyAnswer(sentence=told.sentence, code=told.code, facts=facts))


ENDPOINTS: Final[tuple[AnyEndpoint, ...]] = (
    Endpoint(
        method=Method.GET,
        path="/api/v1/executions/{execution_id}/why",
        name="explain_execution",
        summary="Why an execution is where it is, in one sentence.",
        permission=parse_permission("executions:read"),
        scope=Scope.INSTALLATION,
        answer=WhyAnswer,
        also=(404,),
        for_attempts=True,
        respond=explain_execution,
    ),
)
