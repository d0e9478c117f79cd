"""What an attempt sees with its token: its own execution and those it asked for; nothing else exists for it."""

from attune.api.errors import AnyRequest
from attune.api.pages import ID_MAX
from attune.domain.errors import Forbidden, NotFound
from attune.domain.permission import Caller
from attune.storage.database import Database
from attune.storage.tx import Tx
from attune.storage.views import executions

EXECUTION_KEY = "execution_id"


async def sees_execution(tx: Tx, caller: Caller, execution_id: int) -> bool:
    """Whether an execution exists for this caller."""
    if caller.execution is None or caller.execution == execution_id:
        return True
    return await executions.is_child(tx, execution_id, of=caller.execution)


async def refuse_out_of_sight(database: Database, caller: Caller, request: AnyRequest, *, for_attempts: bool) -> None:
    """Let an attempt use only the routes that are meant for it, and there only what it sees."""
    if caller.execution is None:
        return
    if not for_attempts:
        raise Forbidden("the token of an attempt cannot be used for this", code="not_for_attempts")
    asked = request.path_params.get(EXECUTION_KEY)
    if asked is None or str(asked) == str(caller.execution):
        return
    async with database.reading() as tx:
        known = str(asked).isdecimal() and int(asked) <= ID_MAX
        seen = known and await sees_execution(tx, caller, int(asked))
    if not seen:
        raise NotFound(f"execution {str(asked)[:30]} does not exist")
