"""What an HTTP response means: the value that was asked for, or the reason it was refused."""

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import msgspec

from attune.client.calls import Call
from attune.client.errors import NoAnswer, ProblemField, Refused

T = TypeVar("T")

_ERROR_STATUS_MIN: Final = 400
_SHOWN_CHARACTERS_MAX: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Generic[T]):
    """The value, beside the body it was read from, which scripts get unchanged."""

    value: T
    body: bytes
    status: int


class _Field(msgspec.Struct, frozen=True):
    pointer: str = ""
    message: str = ""
    detail: str = ""


class _Problem(msgspec.Struct, frozen=True):
    title: str = ""
    detail: str = ""
    code: str = ""
    fields: list[_Field] = []
    errors: list[_Field] = []


def read_answer(call: Call[T], *, url: str, status: int, body: bytes) -> Answer[T]:
    """Decode a response; raises Refused for a problem and NoAnswer for anything that is not ours."""
    if status >= _ERROR_STATUS_MIN:
        raise _refusal(url, status, body)
    try:
        value = msgspec.json.decode(body, type=call.answer)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        message = f"{url} answers {call.method} {call.path} unlike Attune's API of this version: {error}"
        raise NoAnswer(message) from error
    return Answer(value=value, body=body, status=status)


def _refusal(url: str, status: int, body: bytes) -> Refused:
    try:
        problem = msgspec.json.decode(body, type=_Problem)
    except (msgspec.DecodeError, msgspec.ValidationError):
        shown = body[:_SHOWN_CHARACTERS_MAX].decode(errors="replace").strip()
        return Refused(f"{url} answers {status}: {shown or 'no reason given'}", status=status, code="unknown")
    fields = [
        ProblemField(pointer=each.pointer, message=each.message or each.detail)
        for each in (*problem.fields, *problem.errors)
    ]
    message = problem.detail or problem.title or f"{url} answers {status}"
    return Refused(message, status=status, code=problem.code or "unknown", fields=fields)
