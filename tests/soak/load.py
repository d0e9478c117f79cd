"""A steady stream of requests through the HTTP API: every runtime, with and without a line, at an even pace."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import httpx2

from tests.witness.ledger import ledger_command

# In turn. Native work costs least, so most of a rate goes there; every kind has its share of the way through a worker.
MIX: Sequence[tuple[str, int]] = (
    ("core.noop", 0),
    ("soak.shell", 0),
    ("soak.lined", 8),
    ("soak.python", 0),
    ("core.echo", 0),
    ("soak.native_lined", 3),
    ("soak.shell_lined", 1),
    ("core.noop", 0),
)
# More that are not answered yet: the platform cannot keep up, and the pace is waited for.
UNDER_WAY_MAX = 200
RETRY_SECONDS = 0.2
# A client whose server went away asks the next one, and gives up after so long.
RETRIES_MAX = 300


def write_pack(folder: Path, *, ledger: Path | None = None) -> None:
    """A pack with an action of each kind that the core pack has not; scripts tell the ledger, if there is one."""
    actions, policies = folder / "actions", folder / "policies"
    actions.mkdir(parents=True)
    policies.mkdir()
    (folder / "pack.yaml").write_text("ref: soak\nversion: 1.0.0\n")
    group = "parameters: {type: object, properties: {group: {type: integer}}}\ntimeout_seconds: 60\nidempotent: true\n"
    script = ledger_command(ledger, body=":") if ledger else "echo done"
    shell = "runner: shell\ncommand: |\n" + "".join(f"  {line}\n" for line in script.splitlines())
    native = "runner: native\nentry_point: noop\n"
    python = "runner: python\nentry_point: work.py\n"
    for name, how in {
        "shell": shell,
        "shell_lined": shell,
        "native_lined": native,
        "python": python,
        "lined": python,
    }.items():
        (actions / f"{name}.yaml").write_text(f"ref: soak.{name}\n{how}{group}")
    (actions / "work.py").write_text("def run(group: int = 0) -> dict:\n    return {'group': group}\n")
    for name in ("lined", "native_lined", "shell_lined"):
        (policies / f"{name}.yaml").write_text(
            f"ref: soak.{name}_limit\nscope: {{action: soak.{name}}}\n"
            "concurrency: {limit: 2, method: enqueue, parameters: [group]}\n"
        )


@dataclass(slots=True, kw_only=True)
class Load:
    """Who asks, and what was accepted so far; may have several servers, of which some may be away."""

    clients: list[httpx2.AsyncClient]
    rate: float
    tag: str = "soak"
    accepted: list[int] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    # How often an answer was waited for or asked for again.
    late: int = 0
    again: int = 0
    _under_way: set[asyncio.Task[None]] = field(default_factory=set)

    async def flow(self, stop: asyncio.Event) -> None:
        """Ask at an even pace until told to stop, and wait for the last answers."""
        begin = time.monotonic()
        for number in count():
            pause = begin + number / self.rate - time.monotonic()
            if pause > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await stop.wait()
            if stop.is_set():
                break
            while len(self._under_way) >= UNDER_WAY_MAX:
                self.late += 1
                await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)
            task = asyncio.create_task(self._ask(number))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
        if self._under_way:
            await asyncio.wait(self._under_way)

    async def _ask(self, number: int) -> None:
        """Under one key, so that asking again after an answer got lost asks for nothing new."""
        ref, groups = MIX[number % len(MIX)]
        parameters = {"group": number // len(MIX) % groups} if groups else {}
        body = {"action_ref": ref, "parameters": parameters, "trace_tag": self.tag}
        headers = {"Idempotency-Key": f"{self.tag}-{number}"}
        for turn in range(RETRIES_MAX):
            client = self.clients[(number + turn) % len(self.clients)]
            try:
                answer = await client.post("/api/v1/executions", json=body, headers=headers)
            except httpx2.TransportError:
                answer = None
            if answer is not None and answer.status_code == httpx2.codes.ACCEPTED:
                self.accepted.append(answer.json()["id"])
                return
            if answer is not None and answer.status_code != httpx2.codes.SERVICE_UNAVAILABLE:
                self.refused.append(f"{ref}: {answer.status_code} {answer.text}")
                return
            self.again += 1
            await asyncio.sleep(RETRY_SECONDS)
        self.refused.append(f"{ref}: never answered")
