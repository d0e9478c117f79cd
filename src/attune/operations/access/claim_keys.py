"""Claims idempotency keys for requests that commit together: each is new, or repeats one that was answered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from attune.domain.idempotency import Answered, Claim, KeyName
from attune.storage.access import idempotency_keys
from attune.storage.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """Which keys were taken before, and what is known of them; every other key is now ours."""

    answered: Mapping[KeyName, Answered | None]

    def choose_fresh(self, claims: Sequence[Claim | None]) -> list[bool]:
        """Which requests are to be done: those without a key, and the first of each key that nobody had."""
        seen = set(self.answered)
        fresh = []
        for claim in claims:
            fresh.append(claim is None or claim.name not in seen)
            if claim is not None:
                seen.add(claim.name)
        return fresh


async def claim_keys(tx: Tx, claims: Sequence[Claim | None]) -> Claimed:
    """Claim every key; one that another transaction is just claiming is waited for."""
    hashes: dict[KeyName, bytes] = {}
    for claim in claims:
        if claim is not None:
            hashes.setdefault(claim.name, claim.body_hash)
    if not hashes:
        return Claimed(answered={})
    names = sorted(hashes)
    claimed = await idempotency_keys.reserve(tx, names, [hashes[name] for name in names])
    taken = [name for name in names if name not in claimed]
    # A later statement than the claim, so that it sees what the transaction we waited for has committed.
    found = await idempotency_keys.find_many(tx, taken) if taken else {}
    return Claimed(answered={name: found.get(name) for name in taken})
