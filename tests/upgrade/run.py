"""Replaces an older version by this one while requests come in, as docs/how-to/upgrade.md tells.

make upgrade FROM=v1.2.0 TRANSPORT=rabbitmq
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import asyncpg
import httpx2

from attune.runtime.postgres_server import PostgresServer, ServerPlan
from tests.soak.load import Load, write_pack
from tests.upgrade.judge import judge
from tests.upgrade.upgrade import NEW, TAG, Upgrade
from tests.upgrade.versions import ROOT, NotInHistory, Version, choose_revision, unpacked
from tests.witness.ledger import Ledger
from tests.witness.platform import QUICK, free_port
from tests.witness.servers import start_rabbitmq
from tests.witness.waiting import cancel_when_told_to_end, until

RATE = 20.0
OLD_SCALE = ("--scale", "executor=2", "--scale", "worker=2")
READY_SECONDS = 120.0
# No worker dies here, so none shall look dead on a machine that is busy.
PATIENT = {"ATTUNE__WORKER__HEARTBEAT_INTERVAL": "10"}
FINISH_SECONDS = 300.0
DRAIN_SECONDS = "120"


@asynccontextmanager
async def standing(clone: Path, transport: str, *, phase_seconds: float) -> AsyncIterator[Upgrade]:
    """The older version at work, on servers of its own; nothing is left afterwards."""
    async with AsyncExitStack() as stack:
        place = Path(tempfile.mkdtemp(prefix="attune-upgrade-"))
        place.chmod(0o755)
        stack.callback(shutil.rmtree, place, ignore_errors=True)
        server = PostgresServer(
            ServerPlan(home=place, data=place / "pg", log=place / "postgres.log", password=secrets.token_hex(16))
        )
        stack.push_async_callback(server.stop)
        await server.start()
        await server.ensure_database("attune")
        settings = {**QUICK, **PATIENT, "ATTUNE__DATABASE__URL": server.url_of("attune")}
        if transport == "rabbitmq":
            settings["ATTUNE__MESSAGE_QUEUE__URL"] = (await stack.enter_async_context(start_rabbitmq())).url()
        old_port, new_port = free_port(), free_port()
        old = Version(clone=clone, home=place / "old", settings={**settings, "ATTUNE__API__PORT": str(old_port)})
        new = Version(clone=ROOT, home=place / "new", settings={**settings, "ATTUNE__API__PORT": str(new_port)})
        stack.push_async_callback(new.stop)
        stack.push_async_callback(old.run, "down", check=False)
        await old.run("up", "--detach", *OLD_SCALE)
        ledger = Ledger(place / "ledger.txt")
        ledger.create()
        write_pack(place / "pack", ledger=ledger.path)
        await old.run("pack", "install", str(place / "pack"))
        token = (await old.run("token", "create", "--name", "load", "-o", "value")).strip()
        client = await stack.enter_async_context(_client(old_port, token))
        yield Upgrade(
            old=old,
            new=new,
            old_port=old_port,
            new_port=new_port,
            load=Load(clients=[client], rate=RATE, tag=TAG),
            database=await stack.enter_async_context(asyncpg.create_pool(server.url_of("attune"), min_size=1)),
            ledger=ledger,
            phase_seconds=phase_seconds,
        )


def _client(port: int, token: str) -> httpx2.AsyncClient:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=30)


async def roll(upgrade: Upgrade) -> None:
    """The steps of an operator, while the load never stops."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(upgrade.load.flow(stop))
        await upgrade.let_flow()
        await _bring_new(upgrade)
        upgrade.say("both versions work side by side")
        await upgrade.let_flow()
        await _take_old_away(upgrade)
        upgrade.say("the old version is gone")
        await upgrade.let_flow()
        stop.set()
    await until(partial(_all_ended, upgrade.database), seconds=FINISH_SECONDS)


async def _bring_new(upgrade: Upgrade) -> None:
    new, old = upgrade.new, upgrade.old
    shutil.copytree(old.home / "secrets", new.home / "secrets")
    (new.home / "data").mkdir()
    (new.home / "data" / "packs").symlink_to(old.home / "data" / "packs")
    begin = time.monotonic()
    applied = json.loads(await new.run("db", "migrate", "-o", "json"))["applied"]
    upgrade.seen["migrations"] = [each["version"] for each in applied]
    upgrade.seen["migrate_seconds"] = round(time.monotonic() - begin, 1)
    upgrade.say(f"the database is at the new version: {len(applied)} migrations under load")
    for service, name in NEW:
        await new.serve(service, name)
    token = upgrade.load.clients[0].headers["Authorization"].removeprefix("Bearer ")
    client = _client(upgrade.new_port, token)
    await until(partial(_is_ready, client), seconds=READY_SECONDS)
    names = [name for service, name in NEW if service == "worker"]
    await until(partial(_are_active, upgrade.database, names), seconds=READY_SECONDS)
    upgrade.load.clients.append(client)


async def _take_old_away(upgrade: Upgrade) -> None:
    """Workers first, drained; then who answers requests, then who places."""
    old = upgrade.old
    for number in (2, 1):
        await old.run("worker", "drain", f"worker-{number}", "--wait", "--timeout", DRAIN_SECONDS)
        await old.run("scale", f"worker={number - 1}")
        upgrade.say(f"worker-{number} of the old version is drained and stopped")
    # As a balancer would, before it is stopped.
    before = upgrade.load.clients.pop(0)
    await old.run("scale", "executor=1")
    await old.run("scale", "executor=0")
    await old.run("down")
    await before.aclose()


async def _is_ready(client: httpx2.AsyncClient) -> bool:
    try:
        return (await client.get("/readyz")).status_code == httpx2.codes.OK
    except httpx2.TransportError:
        return False


async def _are_active(database: asyncpg.Pool, names: list[str]) -> bool:
    found = await database.fetchval(
        "SELECT count(*) FROM attune.worker WHERE name = ANY($1) AND status = 'active'", names
    )
    return bool(found == len(names))


async def _all_ended(database: asyncpg.Pool) -> bool:
    return not await database.fetchval(
        "SELECT (SELECT count(*) FROM attune.execution WHERE ended_at IS NULL) + (SELECT count(*) FROM attune.outbox)"
    )


async def main(arguments: argparse.Namespace) -> int:
    """One upgrade."""
    cancel_when_told_to_end()
    transport = arguments.transport or "postgres"
    try:
        revision = choose_revision(arguments.revision)
    except NotInHistory as error:
        sys.stdout.write(json.dumps({"ok": False, "not_run": str(error)}) + "\n")
        return 1
    seconds = float(arguments.minutes or 1) * 60 / 3
    with unpacked(revision) as clone:
        async with standing(clone, transport, phase_seconds=seconds) as upgrade:
            upgrade.say(f"version {revision[:12]} works, messages through {transport}")
            await roll(upgrade)
            report = await judge(upgrade)
    sys.stdout.write(json.dumps({"from": revision[:12], "transport": transport, **report}) + "\n")
    return 0 if report["ok"] else 1


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="revision", default="", help="the newest release before this, unless said")
    parser.add_argument("--minutes", default="", help="how long the load lasts about, 1 unless said")
    parser.add_argument("--transport", default="", choices=["", "postgres", "rabbitmq"])
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(parse())))
