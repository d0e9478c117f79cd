"""Messages as they travel: a small JSON envelope, read strictly."""

from datetime import UTC, datetime
from typing import Annotated

import msgspec

from attune.domain.errors import Invalid
from attune.domain.messages import ITEMS_MAX, Item, Message

VERSION = 1
# A hint is about a hundred bytes; whatever is larger than this was not written by us.
ENVELOPE_BYTES_MAX = 64 * 1024
DEATHS_MAX = 100

# Pools are known by a hash of what they ask for, and that may be negative.
_Id = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Attempt = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class UnreadableMessage(Invalid):
    """These bytes are no message of ours."""

    code = "unreadable_message"


class NewerMessage(UnreadableMessage):
    """A message of a version that only a newer Attune reads; during an upgrade one may be on its way."""

    code = "newer_message"


class Envelope(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is written on the wire."""

    message_id: Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,18}$")]
    correlation_id: Annotated[str, msgspec.Meta(max_length=100)]
    type: _Name
    version: int
    timestamp: datetime
    topic: _Name
    items: Annotated[tuple[tuple[_Id, _Attempt], ...], msgspec.Meta(max_length=ITEMS_MAX)]
    deliveries: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 0
    traceparent: Annotated[str, msgspec.Meta(max_length=100)] | None = None
    deaths: Annotated[tuple[str, ...], msgspec.Meta(max_length=DEATHS_MAX)] = ()


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Envelope)


class _Versioned(msgspec.Struct):
    """All that can be said of a message whose other fields are not known yet."""

    version: int


_version_decoder = msgspec.json.Decoder(_Versioned)


def encode(message: Message, *, correlation_id: str | None = None, traceparent: str | None = None) -> bytes:
    """The message as bytes; a message that would not be read back is refused here."""
    if len(message.items) > ITEMS_MAX:
        raise UnreadableMessage(f"a message carries at most {ITEMS_MAX} items, not {len(message.items)}")
    body = _encoder.encode(
        Envelope(
            message_id=str(message.id),
            correlation_id=correlation_id or str(message.id),
            type=message.type,
            version=VERSION,
            timestamp=message.created,
            topic=message.topic,
            items=message.items,
            deliveries=message.deliveries,
            traceparent=traceparent,
            deaths=message.deaths[-DEATHS_MAX:],
        )
    )
    if len(body) > ENVELOPE_BYTES_MAX:
        raise UnreadableMessage(f"a message has at most {ENVELOPE_BYTES_MAX} bytes, not {len(body)}")
    return body


def decode(body: bytes) -> Message:
    """The message these bytes stand for; raises `UnreadableMessage`, or `NewerMessage` if time may help."""
    if len(body) > ENVELOPE_BYTES_MAX:
        raise UnreadableMessage(f"a message has at most {ENVELOPE_BYTES_MAX} bytes, not {len(body)}")
    try:
        envelope = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        _refuse_newer(body)
        raise UnreadableMessage(f"this is no message: {error}") from None
    if envelope.version > VERSION:
        _refuse_newer(body)
    if envelope.version != VERSION:
        raise UnreadableMessage(f"this Attune reads message version {VERSION}, not {envelope.version}")
    if envelope.timestamp.tzinfo is None:
        raise UnreadableMessage("the timestamp has no time zone")
    return _message_of(envelope, envelope.timestamp.astimezone(UTC))


def _refuse_newer(body: bytes) -> None:
    """Whatever else a newer version put into it, or left out."""
    try:
        version = _version_decoder.decode(body).version
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    if version > VERSION:
        raise NewerMessage(f"this Attune reads message version {VERSION}, not {version}")


def _message_of(envelope: Envelope, created: datetime) -> Message:
    items: tuple[Item, ...] = envelope.items
    return Message(
        id=int(envelope.message_id),
        topic=envelope.topic,
        type=envelope.type,
        items=items,
        deliveries=envelope.deliveries,
        created=created,
        not_before=created,
        deaths=envelope.deaths,
    )
