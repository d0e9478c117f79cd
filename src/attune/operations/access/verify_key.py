"""Makes sure that the key file is the one this database's secrets were sealed with."""

from attune.domain.errors import Invalid
from attune.runtime.keys import SealBroken, open_sealed, seal, sealing_context
from attune.storage.access import installations
from attune.storage.tx import Tx

PROOF = b"this key belongs to this database"
CONTEXT = sealing_context("installation", 1, "key_check")


class WrongKey(Invalid):
    """The key at hand cannot open what this database holds."""

    code = "wrong_key"


async def verify_key(tx: Tx, key: bytes) -> None:
    """Check the key; the first one ever seen becomes the installation's."""
    stored = await installations.find_key_check(tx)
    if stored is None:
        stored = await installations.insert(tx, seal(key, PROOF, context=CONTEXT))
    try:
        opened = open_sealed(key, stored, context=CONTEXT)
    except SealBroken as error:
        raise WrongKey(_explain(str(error))) from error
    if opened != PROOF:
        raise WrongKey(_explain("the proof in the database is not ours"))


def _explain(reason: str) -> str:
    return (
        f"the key file does not belong to this database: {reason}. "
        "Put back the key file that was used when the database was created (setting security.key_file)"
    )
