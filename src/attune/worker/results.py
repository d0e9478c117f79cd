"""What an action printed or wrote becomes its result: parsed, bounded, checked against the output schema."""

import io
from collections.abc import Callable, Mapping
from dataclasses import replace
from tempfile import SpooledTemporaryFile
from types import MappingProxyType
from typing import Final

import msgspec

from attune.domain.definitions import OutputFormat
from attune.domain.errors import FieldError
from attune.domain.json_schema import find_document_errors
from attune.domain.json_values import BYTES_MAX, DEPTH_MAX, Json, find_unstorable
from attune.domain.parameters import validate_output
from attune.domain.retry import Ending, Large
from attune.domain.secrecy.masking import Masker
from attune.worker.runners.protocol import Attempt, failed, succeeded

# A larger result becomes an artifact: the row of an execution is something to read and pass on, not a file.
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
    """What one stream printed: the beginning for parsing, the end for people, and the size of all of it.

    The beginning leaves memory when it gets large: a file without a name holds it, which ends with this object.
    """

    def __init__(self, masker: Masker | None = None, *, keep: int = RESULT_BYTES_MAX) -> None:
        self.total = 0
        self._keep = keep
        self._masker = masker or Masker()
        self._head: SpooledTemporaryFile[bytes] | None = None
        self._tail = bytearray()
        self._tail_bytes = TAIL_BYTES_MAX + self._masker.reach

    def add(self, content: bytes) -> None:
        if self.total < self._keep:
            if self._head is None:
                self._head = SpooledTemporaryFile(max_size=RESULT_BYTES_MAX)  # noqa: SIM115  closed with the attempt
            self._head.write(content[: self._keep - self.total])
        self.total += len(content)
        self._tail += content[-self._tail_bytes :]
        if len(self._tail) > 2 * self._tail_bytes:
            del self._tail[: -self._tail_bytes]

    def whole(self) -> bytes:
        """Everything; raises OutputTooLarge if not everything was kept."""
        if self.total > self._keep:
            raise OutputTooLarge(f"the output is {self.total} bytes long; at most {self._keep} become a result")
        if self._head is None:
            return b""
        self._head.seek(0)
        content = self._head.read()
        self._head.seek(0, io.SEEK_END)
        return content

    def last_line(self) -> bytes:
        """The last line that is not empty; of an output that was not kept whole only if it is short."""
        content = (self.whole() if self.total <= self._keep else bytes(self._tail[-TAIL_BYTES_MAX:])).strip()
        return content[content.rfind(b"\n") + 1 :]

    def tail(self) -> str:
        """The end, masked before it is cut, as text that PostgreSQL can store."""
        end = self._masker.mask_end(bytes(self._tail[-self._tail_bytes :]), keep=TAIL_BYTES_MAX)
        return storable_text(end.decode(errors="replace"))

    def close(self) -> None:
        """Let go of the beginning."""
        if self._head is not None:
            self._head.close()


def storable_text(text: str) -> str:
    """PostgreSQL cannot store U+0000."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def tails(exit_code: int | None, stdout: Captured, stderr: Captured) -> Json:
    """What people want to see of a command: how it ended and the last it said."""
    return {"exit_code": exit_code, "stdout": stdout.tail(), "stderr": stderr.tail()}


def parse_json(stdout: Captured) -> Json | Large:
    """The whole output if it is one document, else its last line."""
    error: Exception
    try:
        return _read_document(stdout.whole())
    except (BadOutput, OutputTooLarge) as first:
        error = first
    try:
        return _read_document(stdout.last_line())
    except BadOutput:
        raise error from None


def _read_document(content: bytes) -> Json | Large:
    if len(content) <= RESULT_BYTES_MAX:
        return _decode_json(content)
    _check_json(content)
    return Large(name="result.json", media_type="application/json", content=content)


def parse_jsonl(stdout: Captured) -> Json | Large:
    """One document for each line that is not empty."""
    content = stdout.whole()
    if len(content) <= RESULT_BYTES_MAX:
        return [_decode_json(line) for line in content.splitlines() if line.strip()]
    for line in content.splitlines():
        if line.strip():
            _check_json(line)
    return Large(name="result.jsonl", media_type="application/jsonl", content=content)


def parse_yaml(stdout: Captured) -> Json:
    content = stdout.whole()
    if len(content) > RESULT_BYTES_MAX:
        # Reading so much YAML takes minutes.
        raise OutputTooLarge(f"the output is {len(content)} bytes of YAML; at most {RESULT_BYTES_MAX} become a result")
    try:
        # Through JSON, so that dates and other things YAML knows become text.
        return _decode_json(msgspec.json.encode(msgspec.yaml.decode(content)))
    except (msgspec.DecodeError, msgspec.ValidationError, TypeError, ValueError, RecursionError) as error:
        raise BadOutput(f"the output is not YAML: {error}") from None


PARSERS: Final[Mapping[str, Callable[[Captured], Json | Large]]] = MappingProxyType(
    {OutputFormat.JSON: parse_json, OutputFormat.JSONL: parse_jsonl, OutputFormat.YAML: parse_yaml}
)


def finish_with(attempt: Attempt, result: Json | Large, *, exit_code: int | None = None, seen: Json = None) -> Ending:
    """Success, if the result is small enough and what the output schema promises; else a failure that keeps `seen`."""
    try:
        kept = check_result(result, attempt.work.output_schema, bytes_max=attempt.artifact_bytes_max)
    except OutputTooLarge as error:
        return failed(attempt, "output_too_large", str(error), result=seen, exit_code=exit_code)
    except BadOutput as error:
        return failed(attempt, "bad_output", str(error), result=seen, exit_code=exit_code)
    ending = succeeded(None if isinstance(kept, Large) else kept, exit_code=exit_code)
    return replace(ending, large=kept) if isinstance(kept, Large) else ending


def check_result(result: Json | Large, schema: Json, *, bytes_max: int) -> Json | Large:
    """The result as it is kept; raises if it may not be."""
    if result is None and schema is None:
        return result
    large = result if isinstance(result, Large) else _find_large(result)
    if large is not None and len(large.content) > bytes_max:
        raise OutputTooLarge(f"the result is {len(large.content)} bytes long; at most {bytes_max} are kept")
    errors = _find_errors(result, schema, large)
    if errors:
        shown = "; ".join(f"{error.pointer} {error.message}".strip() for error in errors[:ERRORS_SHOWN_MAX])
        raise BadOutput(f"the result breaks the output schema: {shown}")
    return result if large is None else large


def _find_large(result: Json) -> Large | None:
    try:
        content = msgspec.json.encode(result)
    except (RecursionError, ValueError) as error:
        raise BadOutput(f"the result is nested deeper than {DEPTH_MAX} levels or unencodable: {error}") from None
    if len(content) <= RESULT_BYTES_MAX:
        return None
    return Large(name="result.json", media_type="application/json", content=content)


def _find_errors(result: Json | Large, schema: Json, large: Large | None) -> list[FieldError]:
    if large is None:
        return validate_output(schema, result) if isinstance(schema, dict) else find_unstorable(result)
    if not isinstance(schema, dict):
        return []  # No row has to hold it.
    if isinstance(result, Large):
        lines = result.content.splitlines() if result.name.endswith("l") else None
        result = (
            _decode_json(result.content) if lines is None else [_decode_json(each) for each in lines if each.strip()]
        )
    return find_document_errors(schema, result)


def _decode_json(content: bytes) -> Json:
    try:
        decoded: Json = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadOutput(f"the output is not JSON: {error}") from None
    return decoded


def _check_json(content: bytes) -> None:
    """That it is JSON, without building what it says."""
    try:
        msgspec.json.decode(content, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadOutput(f"the output is not JSON: {error}") from None
