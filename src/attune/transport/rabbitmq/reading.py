"""What a delivery says: the message in its body, and how it died before, in its headers."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from aio_pika.abc import AbstractIncomingMessage

from attune.domain.messages import DEAD_TOPIC, Message
from attune.transport import codec
from attune.transport.topology import PROBE_HEADER, Queue


def is_probe(delivery: AbstractIncomingMessage) -> bool:
    """Whether this only asks if the binding exists."""
    return PROBE_HEADER in delivery.headers


def read(delivery: AbstractIncomingMessage, queue: Queue) -> Message:
    """The message, as the consumer of this queue understands it; raises `UnreadableMessage`."""
    message = codec.decode(delivery.body)
    if DEAD_TOPIC in queue.topics:
        # As on the other transport, its age counts from its death.
        created = died_at(delivery) or message.created
        return replace(message, topic=DEAD_TOPIC, created=created, deaths=message.deaths + deaths_of(delivery))
    if message.topic not in queue.topics:
        raise codec.UnreadableMessage(f"topic {message.topic} does not belong in {queue.name}")
    return message


def deaths_of(delivery: AbstractIncomingMessage) -> tuple[str, ...]:
    """Where, why and when the broker gave the message up, newest first."""
    return tuple(_describe(death) for death in _history(delivery))


def died_at(delivery: AbstractIncomingMessage) -> datetime | None:
    """When the broker gave the message up the last time; to the second, the broker says no more."""
    times = [at for death in _history(delivery) if isinstance(at := death.get("time"), datetime)]
    return max(times).astimezone(UTC) if times else None


def _history(delivery: AbstractIncomingMessage) -> list[Mapping[str, object]]:
    history = delivery.headers.get("x-death")
    known = history[: codec.DEATHS_MAX] if isinstance(history, list) else []
    return [death for death in known if isinstance(death, Mapping)]


def text_of(body: bytes) -> str:
    """The bytes for a person to look at: cut where it is too long, without what PostgreSQL's text refuses."""
    return body[: codec.ENVELOPE_BYTES_MAX].decode("utf-8", errors="backslashreplace").replace("\x00", "\\x00")


def _describe(death: Mapping[str, object]) -> str:
    at = death.get("time")
    when = at.isoformat() if isinstance(at, datetime) else str(at)
    return f"{death.get('queue')} {death.get('reason')} at {when}"
