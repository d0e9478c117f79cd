"""For how long an executor has been in touch with the database without a break.

After an outage, a pause or a start everybody looks silent to whoever comes first, though nobody could be heard. So
whoever gives work up because no worker lives, first waits until the living had the time to say so.
"""

from collections.abc import Callable

from attune.runtime.clock import monotonic


class Contact:
    """Touched whenever the database has answered; a silence longer than `break_seconds` begins it anew."""

    def __init__(
        self, *, break_seconds: float = 0.0, patience_seconds: float = 0.0, clock: Callable[[], float] = monotonic
    ) -> None:
        self._clock = clock
        self._break_seconds = break_seconds
        self._patience_seconds = patience_seconds
        self._since: float | None = None
        self._last = 0.0

    def touch(self) -> None:
        """The database has answered."""
        now = self._clock()
        if self._since is None or now - self._last > self._break_seconds:
            self._since = now
        self._last = now

    @property
    def is_old(self) -> bool:
        """Whether everybody who lives had the time to be heard; always, where no patience is asked for."""
        if not self._patience_seconds:
            return True
        now = self._clock()
        unbroken = self._since is not None and now - self._last <= self._break_seconds
        return unbroken and now - (self._since or now) >= self._patience_seconds
