"""Takes the secrets out of checked parameters, before anybody could write them down."""

from collections.abc import Mapping

from attune.domain.errors import FieldError, Invalid, Unavailable
from attune.domain.json_values import Json, join_pointer
from attune.domain.secrecy.sealing import MARKER, take_secrets
from attune.operations.access.seal_parameters import Sealing
from attune.runtime.vault import NoKey, Vault


def set_secrets_aside(
    vault: Vault, schema: Mapping[str, Json], parameters: dict[str, Json]
) -> tuple[dict[str, Json], Sealing | None]:
    """The parameters as everybody may see them, and the secrets, ready to be sealed."""
    shown, taken = take_secrets(schema, parameters)
    if not taken:
        return shown, None
    if copied := [each for each in taken if each.value == MARKER]:
        # From what was shown of an earlier execution: running with it could only fail, or worse, not fail.
        message = "is the marker that is shown instead of a secret; send the secret itself"
        fields = [FieldError(pointer=join_pointer(each.path), message=message) for each in copied]
        raise Invalid(f"{fields[0].pointer} {message}", code="bad_parameters", fields=fields)
    if not vault.has_key:
        raise Unavailable(str(NoKey()), code="no_key")
    return shown, Sealing(vault=vault, taken=tuple(taken))
