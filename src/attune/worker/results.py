"""What an action printed or wrote becomes its result: parsed, bounded, checked against the output schema."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from attune.domain.definitions import OutputFormat
from attune.domain.json_values import BYTES_MAX, DEPTH_MAX, Json, find_unstorable
from attune.domain.parameters import validate_output
from attune.domain.retry import Ending
from attune.worker.runners.protocol import Attempt, failed, succeeded

# A larger result fails the execution: a result is something to read and pass on, not a file.
RESULT_BYTES_MAX: Final = BYTES_MAX
# How much of the end of each stream a text result keeps; all of it is in the log.
TAIL_BYTES_MAX: Final = 64 * 1024
# Errors named in the message; the first few are enough to find the mistake.
ERRORS_SHOWN_MAX: Final = 3


class BadOutput(Exception):
    """The output is not what the action promises; the message says why."""


class OutputTooLarge(Exception):
    """The result is larger than a result may be."""


class Captured:
    """What one stream printed: the beginning for parsing, the end for people, and the size of all of it."""

    def __init__(self) -> None:
        self.total = 0
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, content: bytes) -> None:
        self.total += len(content)
        self._head += content[: RESULT_BYTES_MAX - len(self._head)]
        self._tail += content[-TAIL_BYTES_MAX:]
        if len(self._tail) > 2 * TAIL_BYTES_MAX:
            del self._tail[:-TAIL_BYTES_MAX]

    def whole(self) -> bytes:
        """Everything; raises OutputTooLarge if not everything was kept."""
        if self.total > RESULT_BYTES_MAX:
            raise OutputTooLarge(f"the output is {self.total} bytes long; at most {RESULT_BYTES_MAX} become a result")
        return bytes(self._head)

    def last_line(self) -> bytes:
        lines = bytes(self._tail[-TAIL_BYTES_MAX:]).strip().splitlines()
        return lines[-1] if lines else b""

    def tail(self) -> str:
        """The end, as text that PostgreSQL can store."""
        return storable_text(bytes(self._tail[-TAIL_BYTES_MAX:]).decode(errors="replace"))


def storable_text(text: str) -> str:
    """PostgreSQL cannot store U+0000."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def tails(exit_code: int | None, stdout: Captured, stderr: Captured) -> Json:
    """What people want to see of a command: how it ended and the last it said."""
    return {"exit_code": exit_code, "stdout": stdout.tail(), "stderr": stderr.tail()}


def parse_json(stdout: Captured) -> Json:
    """The whole output if it is one document, else its last line."""
    error: Exception
    try:
        return _decode_json(stdout.whole())
    except (BadOutput, OutputTooLarge) as first:
        error = first
    try:
        return _decode_json(stdout.last_line())
    except BadOutput:
        raise error from None


def parse_jsonl(stdout: Captured) -> Json:
    """One document for each line that is not empty."""
    return [_decode_json(line) for line in stdout.whole().splitlines() if line.strip()]


def parse_yaml(stdout: Captured) -> Json:
    try:
        # Through JSON, so that dates and other things YAML knows become text.
        return _decode_json(msgspec.json.encode(msgspec.yaml.decode(stdout.whole())))
    except (msgspec.DecodeError, msgspec.ValidationError, TypeError, ValueError, RecursionError) as error:
        raise BadOutput(f"the output is not YAML: {error}") from None


PARSERS: Final[Mapping[str, Callable[[Captured], Json]]] = MappingProxyType(
    {OutputFormat.JSON: parse_json, OutputFormat.JSONL: parse_jsonl, OutputFormat.YAML: parse_yaml}
)


def finish_with(attempt: Attempt, result: Json, *, exit_code: int | None = None, seen: Json = None) -> Ending:
    """Success, if the result is small enough and what the output schema promises; else a failure that keeps `seen`."""
    try:
        check_result(result, attempt.work.output_schema)
    except OutputTooLarge as error:
        return failed(attempt, "output_too_large", str(error), result=seen, exit_code=exit_code)
    except BadOutput as error:
        return failed(attempt, "bad_output", str(error), result=seen, exit_code=exit_code)
    return succeeded(result, exit_code=exit_code)


def check_result(result: Json, schema: Json) -> None:
    """Raises if the result may not be kept."""
    if result is None and schema is None:
        return
    try:
        size = len(msgspec.json.encode(result))
    except (RecursionError, ValueError) as error:
        raise BadOutput(f"the result is nested deeper than {DEPTH_MAX} levels or unencodable: {error}") from None
    if size > RESULT_BYTES_MAX:
        raise OutputTooLarge(f"the result is {size} bytes long; at most {RESULT_BYTES_MAX} are kept")
    errors = validate_output(schema, result) if isinstance(schema, dict) else find_unstorable(result)
    if errors:
        shown = "; ".join(f"{error.pointer} {error.message}".strip() for error in errors[:ERRORS_SHOWN_MAX])
        raise BadOutput(f"the result breaks the output schema: {shown}")


def _decode_json(content: bytes) -> Json:
    try:
        decoded: Json = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadOutput(f"the output is not JSON: {error}") from None
    return decoded
