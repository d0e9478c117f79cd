"""What an attempt is told and nobody else gets to see."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from attune.domain.definitions import OutputFormat, RetryPolicy, RetryReason, Runner
from attune.domain.json_values import BYTES_MAX, Json
from attune.domain.secrecy.sealing import MARKER
from attune.operations.place_requested import place_requested
from attune.runtime.vault import Vault
from attune.storage.database import Database
from tests.witness.arrange import always_half, make_action, place, request
from tests.witness.waiting import until
from tests.worker.conftest import StartWorker
from tests.worker.test_worker import ended, log_of, read

SECRET = "hunter2/correct horse&battery"
SCHEMA: Json = {
    "type": "object",
    "properties": {"password": {"type": "string", "secret": True}, "host": {"type": "string"}},
}
# In five encodings, on both streams, and once cut in two by a pause.
PRINTS = r"""
import base64, json, shlex, sys, time, urllib.parse
told = json.load(sys.stdin)
secret = told["password"]
print("plain", secret)
print("json", json.dumps(secret), file=sys.stderr)
print("url", urllib.parse.quote(secret, safe=""), urllib.parse.quote_plus(secret))
print("base64", base64.b64encode(secret.encode()).decode(), base64.b64encode(b"u:" + secret.encode()).decode())
print("shell", shlex.quote(secret), file=sys.stderr)
sys.stdout.write(secret[:10]); sys.stdout.flush(); time.sleep(0.4); print(secret[10:])
print(json.dumps({"secret": secret, "length": len(secret), secret: [secret]}))
"""


@pytest.fixture
def vault() -> Vault:
    return Vault(b"k" * 32)


async def run_and_read(database: Database, ids: list[int]) -> tuple[str, Json, Json]:
    await place(database, ids)
    await until(lambda: ended(database, ids))
    return await read(database, ids[0])


async def dump(database: Database) -> str:
    """Everything in every table that an execution touches."""
    texts = []
    async with database.reading() as tx:
        names = await tx.fetch_column(
            "SELECT relname FROM pg_class WHERE relnamespace = 'attune'::regnamespace AND relkind = 'r'"
        )
        for name in names:
            texts += await tx.fetch_column(f'SELECT t::text FROM attune."{name}" t')  # noqa: S608  names of our own
    return "\n".join(texts)


async def make_printing(database: Database, tmp_path: Path) -> None:
    script = tmp_path / "prints.py"
    script.write_text(PRINTS)
    await make_action(
        database,
        runner=Runner.SHELL,
        entry_point=None,
        command=f"exec python3 {script}",
        parameters=SCHEMA,
        output_format=OutputFormat.JSON,
    )


async def test_a_secret_reaches_the_script_and_nothing_that_is_stored(
    database: Database, start_worker_here: StartWorker, vault: Vault, tmp_path: Path
) -> None:
    await make_printing(database, tmp_path)
    await start_worker_here(vault=vault)
    ids = await request(database, parameters={"password": SECRET, "host": "a"}, vault=vault)

    status, result, error = await run_and_read(database, ids)

    assert (status, error) == ("succeeded", None)
    assert result == {"secret": MARKER, "length": len(SECRET), MARKER: [MARKER]}
    told = "".join(text for _, text in await log_of(database, ids[0]))
    assert told.count(MARKER) >= 9
    everything = await dump(database)
    assert "hunter2" not in everything
    assert "aHVudGVyM" not in everything
    async with database.reading() as tx:
        assert await tx.fetch_value("SELECT parameters FROM execution") == {"password": MARKER, "host": "a"}


async def test_a_secret_is_opened_again_for_another_try(
    database: Database, start_worker_here: StartWorker, vault: Vault, tmp_path: Path
) -> None:
    count = tmp_path / "count"
    await make_action(
        database,
        runner=Runner.SHELL,
        entry_point=None,
        command=f'cat >> {count}; [ "$(wc -l < {count})" -gt 1 ]',
        parameters=SCHEMA,
        retry=RetryPolicy(max_attempts=2, delay_seconds=0.01, retry_on=frozenset({RetryReason.FAILED})),
    )
    await start_worker_here(vault=vault)
    ids = await request(database, parameters={"password": SECRET}, vault=vault)
    await place(database, ids)

    async def again() -> bool:
        async with database.transaction() as tx:
            await place_requested(tx, ids, max_queue_length=100, actor="test", draw=always_half)
        return await ended(database, ids)

    await until(again)

    assert (await read(database, ids[0]))[0] == "succeeded"
    assert count.read_text().count(SECRET) == 2


async def test_a_worker_without_the_key_says_so(
    database: Database, start_worker_here: StartWorker, vault: Vault, tmp_path: Path
) -> None:
    await make_printing(database, tmp_path)
    await start_worker_here()
    ids = await request(database, parameters={"password": SECRET}, vault=vault)

    status, result, error = await run_and_read(database, ids)

    assert (status, result) == ("failed", None)
    assert isinstance(error, dict)
    assert error["code"] == "no_key"
    assert "security.key_file" in str(error["message"])


async def test_a_sealed_value_does_not_open_in_another_place(
    database: Database, start_worker_here: StartWorker, vault: Vault, tmp_path: Path
) -> None:
    await make_printing(database, tmp_path)
    ids = await request(database, parameters={"password": SECRET}, vault=vault, count=2)
    async with database.transaction() as tx:
        await tx.execute(
            """
            UPDATE sealed_parameters s SET sealed = o.sealed FROM sealed_parameters o
             WHERE o.execution_id <> s.execution_id
            """
        )
    await start_worker_here(vault=vault)

    status, _, error = await run_and_read(database, ids)

    assert status == "failed"
    assert isinstance(error, dict)
    assert error["code"] == "seal_broken"
    assert "hunter2" not in str(error)


async def test_a_secret_too_short_to_be_masked_is_warned_about(
    database: Database, start_worker_here: StartWorker, vault: Vault
) -> None:
    await make_action(database, runner=Runner.SHELL, entry_point=None, command="cat", parameters=SCHEMA)
    await start_worker_here(vault=vault)
    ids = await request(database, parameters={"password": "1234"}, vault=vault)

    await run_and_read(database, ids)

    warnings = [text for stream, text in await log_of(database, ids[0]) if stream == "stderr"]
    assert warnings == ["[the secret /password has fewer than 6 characters: it is not masked]\n"]


async def test_the_token_of_an_attempt_is_masked_like_a_secret(
    database: Database, start_worker_here: StartWorker
) -> None:
    command = 'echo "token $ATTUNE_API_TOKEN"; echo "$ATTUNE_API_TOKEN" | base64 -w0'
    await make_action(database, runner=Runner.SHELL, entry_point=None, command=command)
    await start_worker_here(api_url="http://127.0.0.1:1")
    ids = await request(database)

    await run_and_read(database, ids)

    told = "".join(text for _, text in await log_of(database, ids[0]))
    assert told.startswith(f"token {MARKER}\n{MARKER}")
    assert "att_x" not in await dump(database)


async def test_a_secret_is_not_uncovered_by_cutting_what_was_printed(
    database: Database, start_worker_here: StartWorker, vault: Vault
) -> None:
    # The end of the stream that a result keeps begins inside the first secret, wherever that is.
    command = r"""python3 -c 'import json,sys; s=json.load(sys.stdin)["password"]; print(s*4000)'; exit 1"""
    await make_action(database, runner=Runner.SHELL, entry_point=None, command=command, parameters=SCHEMA)
    await start_worker_here(vault=vault)
    ids = await request(database, parameters={"password": SECRET}, vault=vault)

    _, result, _ = await run_and_read(database, ids)

    assert isinstance(result, dict)
    assert result["stdout"] == f"{MARKER}\n"
    assert [text for _, text in await log_of(database, ids[0])] == [f"{MARKER}\n"]


async def test_a_large_result_becomes_an_artifact_masked_like_everything_else(
    database: Database, start_worker_here: StartWorker, vault: Vault
) -> None:
    program = 'import json,sys; s=json.load(sys.stdin)["password"]; print(json.dumps([s, "x" * 3_000_000, s]))'
    await make_action(
        database,
        runner=Runner.SHELL,
        entry_point=None,
        command=f"python3 -c '{program}'",
        parameters=SCHEMA,
        output_format=OutputFormat.JSON,
    )
    await start_worker_here(vault=vault)
    ids = await request(database, parameters={"password": SECRET}, vault=vault)

    status, result, error = await run_and_read(database, ids)

    assert (status, error) == ("succeeded", None)
    async with database.reading() as tx:
        (row,) = await tx.fetch("SELECT id, execution_id, attempt, name, media_type, bytes, sha256 FROM artifact")
        pieces = await tx.fetch_column("SELECT content FROM artifact_piece ORDER BY n")
    content = b"".join(pieces)
    assert result == {
        "artifact": {"id": row["id"], "name": "result.json", "bytes": len(content), "sha256": row["sha256"]}
    }
    assert (row["execution_id"], row["attempt"], row["media_type"]) == (ids[0], 1, "application/json")
    assert len(content) > BYTES_MAX
    assert hashlib.sha256(content).hexdigest() == row["sha256"]
    assert content.startswith(f'["{MARKER}", "xxx'.encode())
    assert content.rstrip().endswith(f'xxx", "{MARKER}"]'.encode())
