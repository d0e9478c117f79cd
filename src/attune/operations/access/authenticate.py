"""Finds out who is asking, from the bearer tokens of requests that arrived together."""

from collections.abc import Mapping, Sequence
from typing import Final

from attune.domain.errors import Unauthenticated
from attune.domain.permission import Caller, Grant, parse_permission
from attune.runtime.passwords import AttemptToken, hash_token, is_token, read_attempt_token
from attune.storage.access import attempts, tokens
from attune.storage.access.attempts import LivingAttempt
from attune.storage.tx import Tx

CREATE: Final = parse_permission("executions:create")
# What an attempt may do by itself. It may ask for executions only as far as whoever asked for it may.
_OWN: Final = (
    Grant(resource="executions", actions=frozenset({"read"})),
    Grant(resource="artifacts", actions=frozenset({"read"})),
)
_CREATING: Final = Grant(resource=CREATE.resource, actions=frozenset({CREATE.action}))


async def authenticate(tx: Tx, secrets: Sequence[str]) -> list[Caller | Unauthenticated]:
    """Each token's holder. Nothing is remembered from one call to the next, so revoking works at once."""
    hashes = {secret: hash_token(secret) for secret in secrets if is_token(secret)}
    found = await tokens.find_callers(tx, sorted(set(hashes.values()))) if hashes else {}
    of_attempts = {secret: token for secret in secrets if (token := read_attempt_token(secret)) is not None}
    ids = sorted({token.execution_id for token in of_attempts.values()})
    living = await attempts.find_living(tx, ids) if ids else {}
    return [
        _attempt(of_attempts[secret], living) if secret in of_attempts else _holder(found.get(hashes.get(secret, b"")))
        for secret in secrets
    ]


def _attempt(token: AttemptToken, living: Mapping[int, LivingAttempt]) -> Caller | Unauthenticated:
    """The token is good as long as its attempt holds its lease, and not a moment longer."""
    attempt = living.get(token.execution_id)
    if attempt is None or attempt.attempt != token.attempt or not token.is_proven_by(attempt.lease):
        return Unauthenticated("the attempt that this token belongs to is over", code="bad_token")
    creates = any(grant.covers(CREATE) for grant in attempt.grants)
    return Caller(
        identity=attempt.identity or 0,
        login=f"execution/{token.execution_id}",
        token_id=0,
        grants=(*_OWN, _CREATING) if creates else _OWN,
        execution=token.execution_id,
    )


def _holder(caller: Caller | None) -> Caller | Unauthenticated:
    return caller or Unauthenticated("this token is unknown, expired or revoked", code="bad_token")
