"""Finds out who is asking, from the bearer tokens of requests that arrived together."""

from collections.abc import Sequence

from attune.domain.errors import Unauthenticated
from attune.domain.permission import Caller
from attune.runtime.passwords import hash_token, is_token
from attune.storage.access import tokens
from attune.storage.tx import Tx


async def authenticate(tx: Tx, secrets: Sequence[str]) -> list[Caller | Unauthenticated]:
    """Each token's holder. Nothing is remembered from one call to the next, so revoking works at once."""
    hashes = [hash_token(secret) if is_token(secret) else None for secret in secrets]
    plausible = sorted({each for each in hashes if each is not None})
    found = await tokens.find_callers(tx, plausible) if plausible else {}
    return [_holder(found.get(each) if each else None) for each in hashes]


def _holder(caller: Caller | None) -> Caller | Unauthenticated:
    return caller or Unauthenticated("this token is unknown, expired or revoked", code="bad_token")
