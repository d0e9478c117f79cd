"""What every script can rely on, in a process or a container: its variables, its parameters, and that it is heard."""

import asyncio
import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from attune.domain.definitions import OutputFormat, ParameterDelivery
from attune.domain.json_values import Json
from attune.domain.retry import Ending
from attune.storage.executions import Startable
from attune.worker.delivery import Undeliverable, write_parameters
from attune.worker.processes import MARKER_VARIABLE
from attune.worker.results import Captured
from attune.worker.runners.protocol import Attempt, Output, Stream, failed
from attune.worker.runners.workspace import OUTPUT_FILE, PARAMETERS_FILE, write_private

READ_BYTES: Final = 64 * 1024
# A full disk, or a full share of it.
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class Unrunnable(Exception):
    """There is nothing to run; the code and message are the execution's error."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Readable(Protocol):
    """The end of a pipe that somebody prints into."""

    async def read(self, size: int, /) -> bytes:
        """What was printed; nothing is the end."""


def make_variables(attempt: Attempt, *, home: str, folder: str, marker: str, api_url: str | None) -> dict[str, str]:
    """Everything but the search path; `home` and `folder` are where the script itself sees its directories."""
    work = attempt.work
    variables = {
        "HOME": home,
        "LANG": "C.UTF-8",
        "TMPDIR": home,
        "ATTUNE_EXECUTION_ID": str(work.execution_id),
        "ATTUNE_ACTION": work.action_ref,
        "ATTUNE_PACK": work.pack_ref,
        "ATTUNE_ATTEMPT": str(work.attempt),
        # The same for every attempt, so that a script can make its own effects happen once.
        "ATTUNE_IDEMPOTENCY_KEY": f"execution-{work.execution_id}",
        "ATTUNE_OUTPUT": f"{folder}/{OUTPUT_FILE}",
        MARKER_VARIABLE: marker,
    }
    if work.parameter_delivery != ParameterDelivery.STDIN:
        variables["ATTUNE_PARAMETER_FILE"] = f"{folder}/{PARAMETERS_FILE}"
    if api_url:
        variables["ATTUNE_API_URL"] = api_url
        if attempt.token:
            variables["ATTUNE_API_TOKEN"] = attempt.token
    if work.traceparent:
        variables["TRACEPARENT"] = work.traceparent
    return variables


def deliver(work: Startable, directory: Path) -> bytes | None:
    """The bytes for standard input; None if the parameters lie in a file instead."""
    parameters: Mapping[str, Json] = work.parameters if isinstance(work.parameters, dict) else {}
    content = write_parameters(parameters, work.parameter_format)
    if work.parameter_delivery == ParameterDelivery.STDIN:
        return content
    write_private(directory / PARAMETERS_FILE, content)
    return None


def capture(attempt: Attempt) -> dict[Stream, Captured]:
    """Of what becomes a result the beginning is kept; of everything else only the end."""
    keep = 0 if attempt.work.output_format == OutputFormat.TEXT else attempt.artifact_bytes_max
    return {
        Stream.STDOUT: Captured(attempt.masker, keep=keep),
        Stream.STDERR: Captured(attempt.masker, keep=0),
    }


async def read_stream(pipe: Readable, stream: Stream, captured: Captured, output: Output) -> None:
    while content := await pipe.read(READ_BYTES):
        captured.add(content)
        await output.write(stream, content)


def never_began(
    attempt: Attempt, error: Unrunnable | Undeliverable | OSError, *, disk_doubted: asyncio.Event
) -> Ending:
    """The ending of an attempt whose script was not started; an error that explains nothing is raised again."""
    match error:
        case Unrunnable():
            return failed(attempt, error.code, str(error))
        case Undeliverable():
            return failed(attempt, "bad_parameters", str(error))
        case OSError() if error.errno in FULL:
            disk_doubted.set()
            return failed(attempt, "no_space", f"there is no room left on the worker's disk: {error.strerror}")
        case _:
            raise error
