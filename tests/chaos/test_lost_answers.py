"""What is done and not told: answers of the database and the broker get lost, and everything is still done once."""

from __future__ import annotations

from collections import Counter

import asyncpg
import httpx2
import pytest

from tests.witness.ledger import Ledger, ledger_command
from tests.witness.platform import Platform, running_platform
from tests.witness.scale import scaled
from tests.witness.waiting import until

SEED = "11"
BATCHES = 12
BATCH = 5
END_SECONDS = 180.0
TRIES = 20
# Of many small steps a few, of the rare ones many.
LOST = {
    "storage.commit.before_answer": 0.04,
    "publish.confirmed.before_answer": 0.1,
    "api.accept.after_commit": 0.3,
    "api.answer.before_send": 0.1,
    "lease.renewed.before_answer": 0.2,
    "worker.finish.after_commit": 0.2,
    "logs.chunks.after_commit": 0.3,
}


# A broker has answers of its own to lose; the other transport is for the full form.
TRANSPORTS = [pytest.param("rabbitmq", marks=pytest.mark.rabbitmq), "postgres"][: scaled(short=1, full=2)]


@pytest.fixture(params=TRANSPORTS)
def settings(request: pytest.FixtureRequest) -> dict[str, str]:
    """What the platform of a test runs with, on each transport."""
    armed = ";".join(f"{name}=unknown@p{chance}" for name, chance in LOST.items())
    chosen = {"ATTUNE_FAILPOINTS": armed, "ATTUNE_FAILPOINTS_SEED": SEED}
    if request.param == "rabbitmq":
        chosen["ATTUNE__MESSAGE_QUEUE__URL"] = str(request.getfixturevalue("rabbitmq_url"))
    return chosen


@pytest.mark.journey
@pytest.mark.timeout(400)
async def test_whatever_answers_are_lost_everything_is_done_once(settings: dict[str, str]) -> None:
    async with running_platform(settings=settings) as platform:
        ledger = Ledger(platform.home / "ledger.txt")
        ledger.create()
        await install(platform, ledger)
        token = (platform.home / "secrets" / "cli_token").read_text().strip()
        async with httpx2.AsyncClient(base_url=platform.url, headers={"Authorization": f"Bearer {token}"}) as client:
            accepted = [each for number in range(BATCHES) for each in await ask(client, number)]
        url = (await platform.run("db", "url")).out.strip()
        async with asyncpg.create_pool(url, min_size=1, max_size=2) as database:
            await until(lambda: is_over(database), seconds=END_SECONDS)
            executions = await database.fetch("SELECT id, status, error, attempt FROM attune.execution ORDER BY id")
            chunks = await database.fetch(
                "SELECT execution_id, attempt, seq FROM attune.execution_log GROUP BY 1, 2, 3 HAVING count(*) > 1"
            )
        starts = sorted(ledger.starts())
        check = await platform.run("check", "-o", "json", check=False)

    # None was accepted twice, though many were accepted unheard.
    assert [row["id"] for row in executions] == sorted(accepted)
    assert Counter((row["status"], row["error"]) for row in executions) == {("succeeded", None): BATCHES * BATCH}
    # Nobody has died, so nobody had to begin again.
    assert starts == [(row["id"], row["attempt"]) for row in executions]
    assert chunks == []
    assert check.code == 0, check.out


async def install(platform: Platform, ledger: Ledger) -> None:
    folder = platform.home / "lost"
    (folder / "actions").mkdir(parents=True)
    (folder / "policies").mkdir()
    body = "echo talk >&2; sleep 0.4"
    command = "".join(f"  {line}\n" for line in ledger_command(ledger.path, body=body).splitlines())
    (folder / "pack.yaml").write_text("ref: lost\nversion: 1.0.0\n")
    (folder / "actions" / "work.yaml").write_text(f"ref: lost.work\nrunner: shell\ncommand: |\n{command}")
    (folder / "policies" / "work.yaml").write_text(
        "ref: lost.limit\nscope: {action: lost.work}\nconcurrency: {limit: 6, method: enqueue}\n"
    )

    async def installed() -> bool:
        return (await platform.run("pack", "install", str(folder), check=False)).code == 0

    await until(installed, seconds=END_SECONDS)


async def ask(client: httpx2.AsyncClient, number: int) -> list[int]:
    """Repeat under the same key until there is an answer."""
    body = {"executions": [{"action_ref": "lost.work"}] * BATCH}
    for _ in range(TRIES):
        headers = {"Idempotency-Key": f"lost-{number}"}
        answer = await client.post("/api/v1/executions:batch", json=body, headers=headers)
        if answer.status_code == httpx2.codes.ACCEPTED:
            return [each["id"] for each in answer.json()["executions"]]
        assert answer.status_code == httpx2.codes.SERVICE_UNAVAILABLE, answer.text
    raise AssertionError(f"no answer to batch {number}")


async def is_over(database: asyncpg.Pool) -> bool:
    return not await database.fetchval(
        """
        SELECT (SELECT count(*) FROM attune.execution WHERE ended_at IS NULL)
             + (SELECT count(*) FROM attune.line_entry)
             + (SELECT count(*) FROM attune.outbox WHERE type <> 'worker.pinged')
        """
    )
