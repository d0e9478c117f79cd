"""Rows of `idempotency_key`: requests that were answered, so that asking again changes nothing."""

from collections.abc import Mapping, Sequence

from attune.domain.idempotency import Answered, KeyName
from attune.storage.tx import Tx


async def reserve(tx: Tx, names: Sequence[KeyName], body_hashes: Sequence[bytes]) -> set[KeyName]:
    """Claim keys, and return those that were free.

    A key that another transaction is just claiming is waited for. Names must be sorted and distinct, because the rows
    stay locked until the commit.
    """
    rows = await tx.fetch(
        """
        INSERT INTO idempotency_key (identity, route, key, body_hash, answer)
        SELECT identity, route, key, body_hash, 'null'
          FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bytea[]) AS n (identity, route, key, body_hash)
        ON CONFLICT DO NOTHING
        RETURNING identity, route, key
        """,
        [name.identity for name in names],
        [name.route for name in names],
        [name.key for name in names],
        body_hashes,
    )
    return {KeyName(**dict(row)) for row in rows}


async def find_many(tx: Tx, names: Sequence[KeyName]) -> dict[KeyName, Answered]:
    """What these keys were used for."""
    rows = await tx.fetch(
        """
        SELECT k.identity, k.route, k.key, k.body_hash, k.answer
          FROM idempotency_key k
          JOIN unnest($1::bigint[], $2::text[], $3::text[]) AS n (identity, route, key)
            ON k.identity = n.identity AND k.route = n.route AND k.key = n.key
        """,
        [name.identity for name in names],
        [name.route for name in names],
        [name.key for name in names],
    )
    return {
        KeyName(identity=row["identity"], route=row["route"], key=row["key"]): Answered(
            body_hash=row["body_hash"], answer=row["answer"]
        )
        for row in rows
    }


async def save_answers(tx: Tx, answered: Mapping[KeyName, Answered | None]) -> None:
    """Keep the answers of keys this transaction claimed."""
    answers = {name: each.answer for name, each in answered.items() if each is not None}
    if not answers:
        return
    await tx.execute(
        """
        UPDATE idempotency_key k SET answer = n.answer
          FROM unnest($1::bigint[], $2::text[], $3::text[], $4::jsonb[]) AS n (identity, route, key, answer)
         WHERE k.identity = n.identity AND k.route = n.route AND k.key = n.key
        """,
        [name.identity for name in answers],
        [name.route for name in answers],
        [name.key for name in answers],
        list(answers.values()),
    )


async def delete_many(tx: Tx, names: Sequence[KeyName]) -> None:
    """Free keys whose requests came to nothing."""
    await tx.execute(
        """
        DELETE FROM idempotency_key k
         USING unnest($1::bigint[], $2::text[], $3::text[]) AS n (identity, route, key)
         WHERE k.identity = n.identity AND k.route = n.route AND k.key = n.key
        """,
        [name.identity for name in names],
        [name.route for name in names],
        [name.key for name in names],
    )
