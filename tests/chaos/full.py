"""One seed from beginning to end: clean, chaos, heal, quiesce, check."""

from __future__ import annotations

import asyncio
import random
import shutil
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic

import asyncpg
import httpx2

from tests.chaos.judge import Record, Verdict, judge
from tests.chaos.nemesis import Nemesis
from tests.chaos.people import People
from tests.chaos.plan import Plan, write_plan
from tests.chaos.replay import record as record_messages
from tests.chaos.replay import replay
from tests.chaos.stage import Stage, a_stage
from tests.chaos.summary import Summary, summarise
from tests.chaos.witnesses import LEDGER, collect, keep_tables, quiesce
from tests.chaos.workload import ANSWER_SECONDS, Clients, Told, write_packs
from tests.witness.ledger import Ledger
from tests.witness.platform import Platform

PROGRESS_SECONDS = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one seed."""

    summary: Summary
    verdict: Verdict
    # The failpoints that fired, and what happened there.
    reached: Mapping[str, str]
    # Where everything is kept, if something is broken.
    folder: Path | None


async def run_plan(plan: Plan, *, keep: bool = False) -> Outcome:
    """Run one plan on a stage of its own; what it wrote down is kept if a promise was broken, or if asked for."""
    folder = Path(tempfile.mkdtemp(prefix="attune-chaos-"))
    # The account that PostgreSQL runs as under root must be able to come in.
    folder.chmod(0o755)
    (folder / "plan.json").write_text(write_plan(plan))
    try:
        outcome = await _run_in(folder, plan, keep=keep)
    except BaseException:
        say(f"broken off; see {folder}")
        raise
    if outcome.folder is None:
        shutil.rmtree(folder, ignore_errors=True)
    return outcome


async def _run_in(folder: Path, plan: Plan, *, keep: bool) -> Outcome:
    began = monotonic()
    say(f"seed {plan.seed} on {plan.transport}: starting")
    async with a_stage(plan, folder) as stage:
        say(f"started in {monotonic() - began:.0f} s")
        try:
            nemesis, clients, record, seconds = await _play(stage, plan)
        except BaseException:
            await _keep(stage)
            raise
        verdict = judge(record)
        if keep or verdict.broken:
            await _keep(stage)
        summary = summarise(plan, nemesis, record, verdict, quiesce_seconds=seconds)
        summary = replace(summary, unknown=sum(told.unknown for told in clients.told), seconds=monotonic() - began)
        kept = folder if keep or verdict.broken else None
        return Outcome(summary=summary, verdict=verdict, reached=stage.reached(), folder=kept)


async def _play(stage: Stage, plan: Plan) -> tuple[Nemesis, Clients, Record, float]:
    Ledger(stage.folder / LEDGER).create()
    for pack in write_packs(stage.folder / "packs", plan, stage.folder / LEDGER):
        await stage.platform.run("pack", "install", str(pack))
    async with asyncpg.create_pool(stage.postgres.url, min_size=1, max_size=1) as database:
        await record_messages(database)
    nemesis = Nemesis(stage=stage, say=say)
    async with _client(stage, await _token(stage.platform)) as client:
        told = [Told(track=track) for track in plan.tracks]
        clients = Clients(plan=plan, client=client, log=stage.folder / "client.jsonl", told=told)
        people = People(stage=stage, client=client, dice=random.Random(plan.seed), over=clients.over)
        await people.install(0)
        async with asyncio.TaskGroup() as tasks:
            progress = tasks.create_task(_tell(clients))
            tasks.create_task(clients.ask())
            tasks.create_task(people.act())
            await asyncio.sleep(plan.clean_seconds)
            say(f"clean: {clients.accepted} accepted")
            began = monotonic()
            await nemesis.strike(tuple(plan.faults))
            await asyncio.sleep(max(0.0, began + plan.chaos_seconds - monotonic()))
            say(f"healed: {clients.accepted} accepted, {len(nemesis.strikes)} faults")
            clients.over.set()
            progress.cancel()
        await people.undo()
        waiting, seconds = await quiesce(stage, people.tend)
        say(f"{'quiet' if not waiting else 'NOT quiet'} after {seconds:.1f} s")
        record = await collect(stage, told, waiting=waiting, in_peace=not plan.faults)
        if plan.replayed and not waiting:
            record = replace(record, replayed=await _replay(stage, plan))
    return nemesis, clients, record, seconds


async def _replay(stage: Stage, plan: Plan) -> list[str]:
    """Every message once more, twice and shuffled, now that all of them have done their work."""
    broker_url = None if stage.broker is None else stage.broker.url()
    async with asyncpg.create_pool(stage.postgres.url, min_size=1, max_size=4) as database:
        began = monotonic()
        replayed = await replay(database, random.Random(plan.seed), broker_url=broker_url)
    say(f"{replayed.messages} messages applied again in {monotonic() - began:.0f} s")
    return replayed.violations


def _client(stage: Stage, token: str) -> httpx2.AsyncClient:
    url = f"http://127.0.0.1:{stage.ways['api'].listening_port}"
    headers = {"Authorization": f"Bearer {token}"}
    return httpx2.AsyncClient(base_url=url, headers=headers, timeout=ANSWER_SECONDS)


async def _token(platform: Platform) -> str:
    return (await platform.run("token", "create", "--name", "chaos", "-o", "value")).out.strip()


async def _tell(clients: Clients) -> None:
    while True:
        await asyncio.sleep(PROGRESS_SECONDS)
        say(f"{clients.accepted} accepted")


async def _keep(stage: Stage) -> None:
    """What is needed to find out why, out of the home that is about to be removed."""
    await asyncio.to_thread(shutil.copytree, stage.platform.home / "logs", stage.folder / "logs", dirs_exist_ok=True)
    with suppress(Exception):
        await keep_tables(stage, stage.folder / "tables")


def say(text: str) -> None:
    sys.stdout.write(f"chaos: {text}\n")
    sys.stdout.flush()
