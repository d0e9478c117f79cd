"""A text that must not be printed: it shows itself only to whoever asks for it by name."""

import re
from typing import Final, final

MASK: Final = "****"

# The password between "scheme://user:" and the last "@": masking too much is better than too little.
_URL_PASSWORD: Final = re.compile(r"(?<=://)([^:@/\s]*):(\S*)@")
_QUERY_PASSWORD: Final = re.compile(r"(?i)([?&](?:password|sslpassword)=)[^&\s]*")


@final
class Secret:
    """Wraps a value so that logs, tracebacks and dataclass reprs show a mask instead."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Give the value itself; every call site is a place where it could leak."""
        return self._value

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    def __str__(self) -> str:
        return MASK

    def __format__(self, spec: str) -> str:
        return format(MASK, spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(("Secret", self._value))

    def __reduce__(self) -> str:
        message = "a Secret is not pickled: it would be written down in the clear"
        raise TypeError(message)


def mask_url_password(text: str) -> str:
    """Replace the password inside any URL of the text, keeping user, host and path readable."""
    masked = _URL_PASSWORD.sub(rf"\1:{MASK}@", text)
    return _QUERY_PASSWORD.sub(rf"\1{MASK}", masked)
