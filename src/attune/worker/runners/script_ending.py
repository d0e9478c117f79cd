"""What an ended script becomes: its exit code, its output file and its streams as one ending."""

import os
import signal
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from attune.domain.definitions import OutputFormat
from attune.domain.execution import Failure
from attune.domain.json_values import Json
from attune.domain.retry import Ending, Large, Outcome
from attune.worker.results import (
    PARSERS,
    RESULT_BYTES_MAX,
    BadOutput,
    Captured,
    OutputTooLarge,
    finish_with,
    parse_json,
    storable_text,
    tails,
)
from attune.worker.runners.protocol import Attempt, Stream, failed, stopped
from attune.worker.runners.workspace import FAILURE_FILE, OUTPUT_FILE

TOLD_CODES: Final = frozenset({"exception", "bad_parameters", "bad_output", "missing_entry_point"})


class _Told(msgspec.Struct, frozen=True):
    code: str
    message: str


def ending_of(
    attempt: Attempt,
    exit_code: int | None,
    captured: Mapping[Stream, Captured],
    directory: Path,
    *,
    whole_tree_gone: bool,
) -> Ending:
    """`directory` is where the script may have left files; without an exit code nobody saw how it ended."""
    seen = tails(exit_code, captured[Stream.STDOUT], captured[Stream.STDERR])
    if not whole_tree_gone:
        return failed(attempt, "tree_survived", "some of its processes could not be killed", result=seen)
    if attempt.stop.reason is not None:
        return stopped(attempt, attempt.stop.reason, result=seen)
    if exit_code is None:
        return launcher_lost(attempt, result=seen)
    if exit_code != 0:
        if told := _read_failure(directory / FAILURE_FILE):
            return failed(attempt, told.code, storable_text(told.message), result=seen, exit_code=exit_code)
        return failed(attempt, "exit_code", _say_exit(exit_code), result=seen, exit_code=exit_code)
    return _succeed(attempt, captured[Stream.STDOUT], directory / OUTPUT_FILE, seen)


def _succeed(attempt: Attempt, stdout: Captured, written: Path, seen: Json) -> Ending:
    try:
        result = _result(attempt, stdout, written, seen)
    except BadOutput as error:
        return failed(attempt, "bad_output", str(error), result=seen, exit_code=0)
    except OutputTooLarge as error:
        return failed(attempt, "output_too_large", str(error), result=seen, exit_code=0)
    return finish_with(attempt, result, exit_code=0, seen=seen)


def launcher_lost(attempt: Attempt, *, result: Json = None) -> Ending:
    """Somebody ended the launcher: for the attempt it is as if the worker had been lost."""
    message = "the process that starts actions was ended, and the action with it"
    failure = Failure(code="launcher_lost", message=message, by=attempt.worker)
    return Ending(outcome=Outcome.WORKER_LOST, result=result, failure=failure)


def _read_failure(path: Path) -> _Told | None:
    """What the program that ran the action says about its failure; anything but its own words is not listened to."""
    try:
        written = _read_written(path, bytes_max=RESULT_BYTES_MAX)
        if written is None:
            return None
        with closing(written):
            told = msgspec.json.decode(written.whole(), type=_Told)
    except (BadOutput, OutputTooLarge, msgspec.DecodeError):
        return None
    return told if told.code in TOLD_CODES else None


def _say_exit(exit_code: int) -> str:
    if exit_code >= 0:
        return f"exited with {exit_code}"
    try:
        return f"was killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"was killed by signal {-exit_code}"


def _result(attempt: Attempt, stdout: Captured, written: Path, seen: Json) -> Json | Large:
    """The file the script wrote, else its standard output in the format its action promises."""
    work = attempt.work
    file = _read_written(written, bytes_max=attempt.artifact_bytes_max)
    if file is not None:
        with closing(file):
            return parse_json(file)
    if work.output_format == OutputFormat.TEXT:
        return seen
    return PARSERS[work.output_format](stdout)


def _read_written(path: Path, *, bytes_max: int) -> Captured | None:
    try:
        # A link could make the worker read a file that the script may not.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadOutput(f"the output file cannot be read: {error.strerror}") from None
    captured = Captured(keep=bytes_max)
    try:
        with os.fdopen(descriptor, "rb") as file:
            captured.add(file.read(bytes_max + 1))
    except OSError as error:
        captured.close()
        raise BadOutput(f"the output file cannot be read: {error.strerror}") from None
    return captured if captured.total else None
