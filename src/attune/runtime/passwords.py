"""Passwords of people, hashed slowly; tokens of programs, minted long enough to be hashed quickly."""

import asyncio
import hashlib
import hmac
import re
import string
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar
from uuid import UUID

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from attune.runtime.batching import Overloaded
from attune.runtime.clock import random_bytes

T = TypeVar("T")

PASSWORD_MAX_BYTES: Final = 1024  # A longer one is refused: hashing must cost the same for everyone.
THREADS: Final = 2  # Logins must not take every core from the rest of the API.
WAITING_MAX: Final = 64  # Further logins are refused at once rather than queued for seconds.

TOKEN_PREFIX: Final = "att_"  # noqa: S105  the public part
_TOKEN_BYTES: Final = 32
_BODY_LENGTH: Final = 43  # 62**43 > 256**32
_CHECK_LENGTH: Final = 6  # 62**6 > 2**32
_ATTEMPT_TOKEN: Final = re.compile(rf"{TOKEN_PREFIX}x([0-9]{{1,18}})x([0-9]{{1,9}})x([0-9a-f]{{64}})")
_ATTEMPT_PURPOSE: Final = b"attune attempt token"
_ALPHABET: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase


class PasswordTooLong(ValueError):
    """The password is longer than any a person would choose."""


def _hasher() -> PasswordHasher:
    """OWASP's argon2id parameters: 19 MiB, two passes, one lane."""
    return PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)


def hash_password(password: str) -> str:
    """Hash with a fresh salt; takes tens of milliseconds, so off the event loop use Passwords."""
    if len(password.encode(errors="surrogatepass")) > PASSWORD_MAX_BYTES:
        raise PasswordTooLong(f"a password has at most {PASSWORD_MAX_BYTES} bytes")
    return _hasher().hash(password)


def verify_password(hashed: str, password: str) -> bool:
    """Whether the password is the one that was hashed; a damaged hash matches nothing."""
    if len(password.encode(errors="surrogatepass")) > PASSWORD_MAX_BYTES:
        return False
    try:
        return _hasher().verify(hashed, password)
    except (VerificationError, InvalidHashError):
        return False


def needs_rehash(hashed: str) -> bool:
    """Whether the hash was made with other parameters than today's."""
    try:
        return _hasher().check_needs_rehash(hashed)
    except InvalidHashError:
        return True


class Passwords:
    """Hashes and verifies in a few threads of its own, so that the event loop goes on."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="passwords")
        self._under_way = 0
        self._decoy = ""

    async def hash(self, password: str) -> str:
        return await self._call(lambda: hash_password(password))

    async def verify(self, hashed: str | None, password: str) -> bool:
        """Check a login; None (no such person) takes as long as a wrong password and is False."""
        return await self._call(lambda: self._verify(hashed, password))

    def close(self) -> None:
        """Let the threads go once they are idle."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _verify(self, hashed: str | None, password: str) -> bool:
        if hashed is not None:
            return verify_password(hashed, password)
        self._decoy = self._decoy or hash_password(random_bytes(16).hex())
        verify_password(self._decoy, password)
        return False

    async def _call(self, work: Callable[[], T]) -> T:
        if self._under_way >= WAITING_MAX:
            raise Overloaded("too many logins at once")
        self._under_way += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._under_way -= 1


def mint_token() -> str:
    """A new bearer token: prefix, 256 random bits, and a checksum that betrays a mistyped one."""
    body = _base62(int.from_bytes(random_bytes(_TOKEN_BYTES)), _BODY_LENGTH)
    return TOKEN_PREFIX + body + _checksum(body)


def is_token(text: str) -> bool:
    """Whether this could be a token of ours; saves the database a look-up for garbage."""
    if len(text) != len(TOKEN_PREFIX) + _BODY_LENGTH + _CHECK_LENGTH or not text.isascii():
        return False
    body = text[len(TOKEN_PREFIX) : -_CHECK_LENGTH]
    return text.startswith(TOKEN_PREFIX) and text[-_CHECK_LENGTH:] == _checksum(body)


def hash_token(token: str) -> bytes:
    """What is stored of a token. Unsalted and quick: 256 random bits cannot be guessed."""
    return hashlib.sha256(token.encode()).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptToken:
    """A token that says which attempt it is of; nothing is stored of it."""

    execution_id: int
    attempt: int
    proof: str

    def is_proven_by(self, lease: UUID) -> bool:
        """Whether it was minted by the holder of this lease."""
        return hmac.compare_digest(self.proof.encode(), _prove(self.execution_id, self.attempt, lease).encode())


def mint_attempt_token(execution_id: int, attempt: int, lease: UUID) -> str:
    """The token of one attempt. Its lease is known to the database and to the worker alone, and ends with it."""
    return f"{TOKEN_PREFIX}x{execution_id}x{attempt}x{_prove(execution_id, attempt, lease)}"


def read_attempt_token(text: str) -> AttemptToken | None:
    """What a token claims to be of; None if it is not an attempt's."""
    match = _ATTEMPT_TOKEN.fullmatch(text)
    return match and AttemptToken(execution_id=int(match[1]), attempt=int(match[2]), proof=match[3])


def _prove(execution_id: int, attempt: int, lease: UUID) -> str:
    told = b"%s %d %d" % (_ATTEMPT_PURPOSE, execution_id, attempt)
    return hmac.digest(lease.bytes, told, hashlib.sha256).hex()


def _checksum(body: str) -> str:
    return _base62(zlib.crc32(body.encode()), _CHECK_LENGTH)


def _base62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))
