"""Attempts for runners, without a database."""

from __future__ import annotations

from dataclasses import dataclass, field

from attune.domain.json_values import Json
from attune.storage.executions import Startable
from attune.worker.runners.protocol import Attempt, Stop, Stream

NO_DIGEST = "0" * 64


def startable(**changes: object) -> Startable:
    values: dict[str, object] = {
        "execution_id": 7,
        "attempt": 1,
        "tries": 1,
        "action_ref": "demo.work",
        "pack_ref": "demo",
        "pack_digest": NO_DIGEST,
        "runner": "shell",
        "entry_point": None,
        "command": None,
        "command_from": None,
        "image": None,
        "container": None,
        "http": None,
        "parameters": {},
        "parameter_delivery": "stdin",
        "parameter_format": "json",
        "output_format": "text",
        "output_schema": None,
        "isolation": None,
        "timeout_seconds": 60.0,
        "traceparent": None,
        "waited_seconds": 0.0,
    }
    return Startable(**(values | changes))  # type: ignore[arg-type]  # each has its field's type


def make_attempt(stop: Stop | None = None, **changes: object) -> Attempt:
    return Attempt(work=startable(**changes), stop=stop or Stop(), worker="worker-1", check_clock=lambda: None)


@dataclass(slots=True)
class Printed:
    """Remembers what an attempt printed."""

    content: dict[Stream, bytes] = field(default_factory=lambda: dict.fromkeys(Stream, b""))

    async def write(self, stream: Stream, content: bytes) -> None:
        self.content[stream] += content


def code_of(error: Json) -> Json:
    assert isinstance(error, dict)
    return error["code"]
