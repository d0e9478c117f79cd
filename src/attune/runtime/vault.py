"""The installation's key in the hands of a service that may have to do without it."""

import hashlib
import hmac
from typing import Final

from attune.runtime.keys import open_sealed, seal

_DIGEST_PURPOSE: Final = b"attune digest of a request"


class NoKey(Exception):
    """This process has no key; the message names the cure."""

    def __init__(self) -> None:
        super().__init__("this process has no key for secrets; give it the installation's (setting security.key_file)")


class Vault:
    """Seals and opens with the key; never shows it."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key

    def __repr__(self) -> str:
        return f"Vault({'with' if self._key else 'without'} key)"

    @property
    def has_key(self) -> bool:
        """Whether anything can be sealed or opened."""
        return self._key is not None

    def seal(self, plaintext: bytes, *, context: str) -> bytes:
        """Encrypt for one place; raises NoKey."""
        return seal(self._must_have(), plaintext, context=context)

    def open(self, sealed: bytes, *, context: str) -> bytes:
        """Decrypt; raises NoKey, or SealBroken if it was sealed with another key or for another place."""
        return open_sealed(self._must_have(), sealed, context=context)

    def digest(self, content: bytes) -> bytes:
        """Recognises the same content again, and tells nobody without the key what it was.

        Without a key no secret is ever accepted, and a plain hash gives nothing away.
        """
        if self._key is None:
            return hashlib.sha256(content).digest()
        purpose = hmac.digest(self._key, _DIGEST_PURPOSE, hashlib.sha256)
        return hmac.digest(purpose, content, hashlib.sha256)

    def _must_have(self) -> bytes:
        if self._key is None:
            raise NoKey
        return self._key


WITHOUT_KEY: Final = Vault()
