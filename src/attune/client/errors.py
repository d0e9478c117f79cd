"""What can go wrong between a program and the API: no connection, no answer in time, a refusal."""

from collections.abc import Sequence
from dataclasses import dataclass


class ClientError(Exception):
    """Every error this client raises."""


class Unreachable(ClientError):
    """Nothing answers at the API's address."""


class TimedOut(ClientError):
    """The API, or the execution waited for, took longer than allowed."""


class NoAnswer(ClientError):
    """Something answered, but not the way Attune's API does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemField:
    """One thing wrong with one part of the request, named by its JSON pointer."""

    pointer: str
    message: str


class Refused(ClientError):
    """The API understood and said no: an RFC 9457 problem with a stable code."""

    def __init__(self, message: str, *, status: int, code: str, fields: Sequence[ProblemField] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.fields = tuple(fields)
