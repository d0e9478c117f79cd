"""Who is asking: bearer tokens, looked up together, and a brake on guessing passwords."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from attune.api.errors import AnyRequest, Throttled
from attune.domain.errors import Unauthenticated
from attune.domain.permission import Caller
from attune.operations.access.authenticate import authenticate
from attune.runtime.batching import Batcher
from attune.storage.database import Database

LOOKUPS_MAX: Final = 500  # Tokens per statement; what arrives beyond it forms the next.
FREE_ATTEMPTS: Final = 5  # Mistyping is human.
PAUSE_MAX_SECONDS: Final = 60.0  # Nobody can lock somebody else out for longer than this.
LOGINS_MAX: Final = 10_000  # Names remembered; the one not tried for longest is forgotten first.


class Authenticator:
    """Turns the Authorization header into a caller."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._batcher: Batcher[str, Caller] = Batcher(self._look_up, batch_max=LOOKUPS_MAX)

    async def identify(self, request: AnyRequest) -> Caller:
        """Who asks; raises if nobody is known by this header."""
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not secret:
            raise Unauthenticated("send a token: Authorization: Bearer att_…", code="no_token")
        return await self._batcher.submit(secret.strip())

    async def _look_up(self, secrets: Sequence[str]) -> list[Caller | BaseException]:
        async with self._database.reading() as tx:
            return list(await authenticate(tx, secrets))


class LoginThrottle:
    """Makes each further wrong password of one login cost twice the time of the last."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tries: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def begin(self, login: str) -> None:
        """Count an attempt before it is made, so that a hundred at once are a hundred."""
        now = self._clock()
        failures, not_before = self._tries.pop(login, (0, 0.0))
        if now < not_before:
            self._tries[login] = (failures, not_before)
            seconds = int(not_before - now) + 1
            raise Throttled(f"too many attempts for this login; wait {seconds} s", retry_after_seconds=seconds)
        failures += 1
        pause = 0.0 if failures < FREE_ATTEMPTS else min(2.0 ** (failures - FREE_ATTEMPTS), PAUSE_MAX_SECONDS)
        self._tries[login] = (failures, now + pause)
        while len(self._tries) > LOGINS_MAX:
            self._tries.popitem(last=False)

    def succeeded(self, login: str) -> None:
        """Forget the attempts of somebody who knew the password."""
        self._tries.pop(login, None)
