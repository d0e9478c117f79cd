"""Claims idempotency keys for requests that commit together: each is new, or repeats one that was answered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from attune.domain.idempotency import Answered, Claim, KeyName
from attune.domain.json_values import Json
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


async def keep_answers(tx: Tx, answers: Mapping[Claim, Json]) -> dict[KeyName, Answered | None]:
    """Remember what keys were used for; one whose request was refused, which has no answer, is free again."""
    kept = {
        claim.name: None if answer is None else Answered(body_hash=claim.body_hash, answer=answer)
        for claim, answer in answers.items()
    }
    await idempotency_keys.save_answers(tx, kept)
    if freed := [name for name, used in kept.items() if used is None]:
        await idempotency_keys.delete_many(tx, freed)
    return kept
