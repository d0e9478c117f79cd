"""What an operator may want different about RabbitMQ, and the limits of everything that is sent."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from attune.domain.messages import Message
from attune.runtime.clock import new_uuid
from attune.transport.broadcasts import POLL_SECONDS
from attune.transport.topology import DEAD_LETTERS

# Called with a dispatch whose worker has no queue. True: it was un-placed and is done with; False: try it again later.
ReturnedDispatch = Callable[[Message], Awaitable[bool]]

CONNECT_SECONDS = 10.0
# Declaring, cancelling and the like: a broker that needs longer is treated as gone.
REQUEST_SECONDS = 10.0
CLOSE_SECONDS = 2.0
HEARTBEAT_SECONDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RabbitOptions:
    """One process's way to its broker."""

    url: str = field(repr=False)
    # Names this process's connections and its notification queue.
    instance: str = field(default_factory=lambda: new_uuid().hex[:12])
    dead_letter_exchange: str = DEAD_LETTERS
    # None: untaken dispatches do not expire, the timeout sweep is the only net.
    dispatch_ttl_seconds: float | None = 300.0
    # A publish that is not confirmed by then is left to the relay.
    publish_seconds: float = 5.0
    # A committed message nobody has sent for this long is taken over by the relay,
    relay_overdue_seconds: float = 2.0
    # which has this long for it; longer than a publish may take, or two replicas would send it.
    relay_claim_seconds: float = 10.0
    relay_interval_seconds: float = 1.0
    # When a message that found no queue is tried again.
    returned_seconds: float = 5.0
    watchdog_seconds: float = 10.0
    revision_poll_seconds: float = POLL_SECONDS
    reconnect_ceiling_seconds: float = 5.0
