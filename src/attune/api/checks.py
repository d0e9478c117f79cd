"""What has to work for the API to be ready, part by part, each with its cure."""

from collections.abc import Mapping

from attune.api.parts import Check, CheckResult
from attune.storage import workers
from attune.storage.database import Database
from attune.storage.migrate import compare
from attune.transport.protocol import Transport


def platform_checks(database: Database, transport: Transport) -> Mapping[str, Check]:
    """The checks of `/readyz`."""

    async def answers() -> CheckResult:
        async with database.reading() as tx:
            await workers.count_active(tx)
        return CheckResult(ok=True, detail="answers")

    async def schema() -> CheckResult:
        async with database.reading() as tx:
            standing = await compare(tx.connection)
        if standing.pending:
            detail = f"{standing.pending} migrations are missing"
            return CheckResult(ok=False, detail=detail, cure="run `attune db migrate`")
        if standing.ahead:
            # Under an upgrade this is how it should be; whoever stops answering now would make it an outage.
            return CheckResult(ok=True, detail=f"{standing.ahead} migrations ahead: an upgrade is under way")
        return CheckResult(ok=True, detail="as this version wants it")

    async def carries() -> CheckResult:
        problems = transport.problems()
        if problems:
            cure = "look at `attune topology --verify`; `attune topology --repair` mends what can be mended"
            return CheckResult(ok=False, detail="; ".join(problems), cure=cure)
        return CheckResult(ok=True, detail=transport.name)

    async def active_workers() -> CheckResult:
        async with database.reading() as tx:
            count = await workers.count_active(tx)
        cure = "" if count else "start one with `attune serve worker`"
        return CheckResult(ok=count > 0, detail=f"{count} active", cure=cure, required=False)

    return {"database": answers, "schema": schema, "transport": carries, "workers": active_workers}
