"""Requests that may be repeated without harm: a key stands for one request and its answer."""

from dataclasses import dataclass

from attune.domain.errors import Conflict, Invalid
from attune.domain.json_values import Json


class IdempotencyMismatch(Invalid):
    """A key was sent again with something else."""

    code = "idempotency_mismatch"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class KeyName:
    """A key belongs to who sent it and to where it was sent."""

    identity: int
    route: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A key that makes a request safe to repeat, and the digest of what is asked."""

    name: KeyName
    body_hash: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What a key was used for: the digest of the request's body, and its answer."""

    body_hash: bytes
    answer: Json


def repeat_answer(claim: Claim, answered: Answered | None) -> Json:
    """The answer a repeated request gets, or the reason why it gets none."""
    if answered is None:
        raise Conflict("the first request with this Idempotency-Key is not answered yet", code="idempotency_in_flight")
    if answered.body_hash != claim.body_hash:
        raise IdempotencyMismatch("this Idempotency-Key was used with another body; take a new key for a new request")
    return answered.answer
