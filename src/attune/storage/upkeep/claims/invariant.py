"""What a claim about the data consists of."""

from dataclasses import dataclass
from enum import StrEnum


class Reads(StrEnum):
    """What a statement reads, and so what its argument `$1` is."""

    # How things stand now; no argument.
    STATE = "state"
    # The history of executions, from the time given.
    HISTORY = "history"
    # The logs of lines, from the kind of checkpoint given.
    ADMISSIONS = "admissions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariant:
    """A claim about the data and the statement that finds what contradicts it."""

    name: str
    claim: str
    statement: str
    reads: Reads = Reads.STATE
