"""The work that flows through a run: packs whose actions tell the ledger, and clients that keep a log of their own."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import httpx2

from tests.chaos.plan import Plan, Track, Work
from tests.witness.ledger import END, START, ledger_command
from tests.witness.wheels import make_wheel

ANSWER_SECONDS = 6.0
AGAIN_SECONDS = 0.2
# Of the last so many asked for, one may be cancelled.
RECENT = 10
LARGE_BYTES = 1_200_000
# What an API may say to somebody who is to ask again.
LATER = frozenset({409, 429, 500, 502, 503, 504})


@dataclass(slots=True, kw_only=True)
class Told:
    """What one client knows for sure: what was accepted, in which order, and what it cancelled."""

    track: Track
    accepted: list[int] = field(default_factory=list)
    cancelled: set[int] = field(default_factory=set)
    work_of: dict[int, Work] = field(default_factory=dict)
    # Keys under which two different answers came, and requests that were refused.
    contradictions: list[str] = field(default_factory=list)
    unknown: int = 0


@dataclass(slots=True, kw_only=True)
class Clients:
    """All clients of a run; each asks until the run is over, and until its last question is answered."""

    plan: Plan
    client: httpx2.AsyncClient
    log: Path
    told: Sequence[Told]
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask(self) -> None:
        """Let work flow until it is over."""
        async with asyncio.TaskGroup() as tasks:
            for told in self.told:
                tasks.create_task(self._keep_asking(told))

    @property
    def accepted(self) -> int:
        return sum(len(told.accepted) for told in self.told)

    async def _keep_asking(self, told: Told) -> None:
        dice = random.Random(f"{self.plan.seed} {told.track.name}")
        number = 0
        while not self.over.is_set():
            number += 1
            works = [dice.choice(told.track.works) for _ in range(dice.randint(1, told.track.batch_max))]
            asked = [
                {
                    "action_ref": work.ref,
                    "parameters": dict(told.track.parameters),
                    "priority": dice.choice(told.track.priorities),
                }
                for work in works
            ]
            ids = await self._request(told, asked, key=f"{told.track.name}-{number}")
            told.accepted += ids
            told.work_of |= dict(zip(ids, works, strict=False))
            if told.accepted and dice.random() < told.track.cancel_chance:
                await self._cancel(told, dice.choice(told.accepted[-RECENT:]))
            with suppress(TimeoutError):
                async with asyncio.timeout(dice.uniform(0, 2 * told.track.pace_seconds)):
                    await self.over.wait()

    async def _request(self, told: Told, asked: Sequence[Mapping[str, object]], *, key: str) -> list[int]:
        """Repeat under the same key until there is an answer: what was accepted unheard is then answered again."""
        while True:
            answer = await self._try(
                told, "/api/v1/executions:batch", {"executions": asked}, headers={"Idempotency-Key": key}
            )
            if answer is not None and answer.status_code == httpx2.codes.ACCEPTED:
                ids = [int(each["id"]) for each in answer.json()["executions"]]
                if len(ids) != len(asked):
                    told.contradictions.append(f"{key}: {len(ids)} answered, {len(asked)} asked for")
                return ids
            if answer is not None and answer.status_code not in LATER:
                told.contradictions.append(f"{key}: {answer.status_code} {answer.text[:200]}")
                return []
            await asyncio.sleep(AGAIN_SECONDS)

    async def _cancel(self, told: Told, execution_id: int) -> None:
        """Asked for, whether or not the answer is heard."""
        told.cancelled.add(execution_id)
        await self._try(told, f"/api/v1/executions/{execution_id}/cancel", None, headers={})

    async def _try(self, told: Told, path: str, body: object, *, headers: Mapping[str, str]) -> httpx2.Response | None:
        """One question; nothing if nobody knows what became of it."""
        said: object = None
        answer = None
        try:
            answer = await self.client.post(path, json=body, headers=dict(headers))
            said = answer.status_code if answer.status_code != httpx2.codes.ACCEPTED else answer.text
        except httpx2.HTTPError as error:
            told.unknown += 1
            said = f"unknown: {type(error).__name__}"
        line = {"at": datetime.now(UTC).isoformat(), "path": path, **headers, "body": body, "answer": said}
        with self.log.open("a") as file:
            file.write(json.dumps(line) + "\n")
        return answer


def write_packs(folder: Path, plan: Plan, ledger: Path) -> list[Path]:
    """The packs of a plan's work; every script tells the ledger when it starts and ends."""
    marks = folder / "marks"
    marks.mkdir(parents=True)
    marks.chmod(0o777)
    packs = [folder / "chaos", folder / "shared"]
    for pack in packs:
        (pack / "actions").mkdir(parents=True)
        (pack / "policies").mkdir()
        (pack / "pack.yaml").write_text(f"ref: {pack.name}\nversion: 1.0.0\n")
    for work in {work.ref: work for track in plan.tracks for work in track.works if not work.packaged}.values():
        _write_action(folder, work, ledger, marks)
    for track in plan.tracks:
        if track.limit is not None:
            _write_policy(folder, track)
    return packs


def _write_policy(folder: Path, track: Track) -> None:
    pack, _, action = track.works[0].ref.partition(".")
    scope = f"{{action: {pack}.{action}}}" if len(track.works) == 1 else f"{{pack: {pack}}}"
    group = f", parameters: [{', '.join(track.parameters)}]" if track.parameters else ""
    adaptive = f"adaptive: {{min: 1, max: {track.limit}}}\n" if track.adaptive else ""
    patience = f"queue_timeout_seconds: {track.queue_timeout_seconds}\n" if track.queue_timeout_seconds else ""
    (folder / pack / "policies" / f"{action}.yaml").write_text(
        f"ref: {pack}.{action}_limit\nscope: {scope}\nconcurrency: {{limit: {track.limit}{group}}}\n"
        f"{adaptive}{patience}"
    )


def write_extra(folder: Path, number: int, ledger: Path, wheels: Path) -> Path:
    """A pack that needs another package each time, and so another environment."""
    pack = folder / f"extra-{number}"
    (pack / "actions").mkdir(parents=True, exist_ok=True)
    (pack / "pack.yaml").write_text(f"ref: extra\nversion: 1.0.{number}\n")
    wheel = make_wheel(wheels, "part", f"1.0.{number}", {"part.py": f"NUMBER = {number}\n"})
    (pack / "requirements.lock").write_text(wheel)
    (pack / "actions" / "packaged.yaml").write_text(
        "ref: extra.packaged\nrunner: python\nentry_point: packaged.py\nidempotent: true\n"
    )
    (pack / "actions" / "packaged.py").write_text(f"import part\n\nassert part.NUMBER is not None\n{_python(ledger)}")
    return pack


def _write_action(folder: Path, work: Work, ledger: Path, marks: Path) -> None:
    pack, _, name = work.ref.partition(".")
    bodies: Mapping[str, Callable[[], str]] = {
        "native": lambda: "entry_point: noop\n",
        "python": lambda: f"entry_point: {name}.py\n",
        "shell": lambda: "command: |\n" + "".join(f"  {line}\n" for line in _script(work, ledger, marks).splitlines()),
    }
    if work.runner == "python":
        (folder / pack / "actions" / f"{name}.py").write_text(_python(ledger))
    retry = ""
    if work.retry_seconds is not None:
        retry = (
            f"retry: {{max_attempts: 20, delay_seconds: {work.retry_seconds}, backoff: constant, "
            "retry_on: [failed, worker_lost]}\n"
        )
    ttl = "" if work.ttl_seconds is None else f"worker_queue_ttl_seconds: {work.ttl_seconds}\n"
    (folder / pack / "actions" / f"{name}.yaml").write_text(
        f"ref: {work.ref}\nrunner: {work.runner}\n{bodies[work.runner]()}"
        f"idempotent: {str(work.idempotent).lower()}\ntimeout_seconds: {work.timeout_seconds}\n{ttl}{retry}"
    )


def _script(work: Work, ledger: Path, marks: Path) -> str:
    body = f"sleep {work.seconds}\necho done"
    if work.large:
        body += f"\n{{ printf '\"'; head -c {LARGE_BYTES} /dev/zero | tr '\\0' x; printf '\"'; }} > \"$ATTUNE_OUTPUT\""
    if work.retry_seconds is not None:
        # Making a folder succeeds once, however many tries come to it at the same time.
        body += f'\nmkdir "{marks}/$ATTUNE_EXECUTION_ID" 2>/dev/null && exit 3'
    return ledger_command(ledger, body=body)


def _python(ledger: Path) -> str:
    return (
        "import os\n\n\n"
        "def say(what):\n"
        f"    with open({str(ledger)!r}, 'a') as file:\n"
        "        file.write(f\"{what} {os.environ['ATTUNE_EXECUTION_ID']} {os.environ['ATTUNE_ATTEMPT']} "
        '{os.getpid()}\\n")\n\n\n'
        f"say({START!r})\nsay({END!r})\n"
    )
