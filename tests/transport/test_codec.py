"""The envelope: what is written is read back, and nothing else is read at all."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attune.domain.messages import Message
from attune.transport.codec import ENVELOPE_BYTES_MAX, NewerMessage, UnreadableMessage, decode, encode

MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MESSAGE = Message(
    id=12,
    topic="execution.dispatch.worker.3",
    type="execution.dispatched",
    items=((42, 1), (43, 0)),
    deliveries=2,
    created=MOMENT,
    not_before=MOMENT,
    deaths=("worker.3.executions expired at 2026-01-02T03:04:00+00:00",),
)
# Pools are known by a hash, which may be negative.
IDS = st.integers(min_value=-(2**63), max_value=2**63 - 1)


def fields(**changes: object) -> bytes:
    return json.dumps(json.loads(encode(MESSAGE)) | changes).encode()


@given(
    items=st.lists(st.tuples(IDS, st.integers(min_value=0, max_value=2**63 - 1)), max_size=100).map(tuple),
    deliveries=st.integers(min_value=0, max_value=1000),
    created=st.datetimes(timezones=st.just(UTC), min_value=datetime(1970, 1, 1)),  # noqa: DTZ001  hypothesis adds it
)
def test_every_message_is_read_back_as_it_was(
    items: tuple[tuple[int, int], ...], deliveries: int, created: datetime
) -> None:
    message = replace(MESSAGE, items=items, deliveries=deliveries, created=created, not_before=created)
    assert decode(encode(message)) == message


def test_the_envelope_has_the_fields_others_rely_on() -> None:
    assert json.loads(encode(MESSAGE, traceparent="00-aa-bb-01")) == {
        "message_id": "12",
        "correlation_id": "12",
        "type": "execution.dispatched",
        "version": 1,
        "timestamp": "2026-01-02T03:04:05Z",
        "topic": "execution.dispatch.worker.3",
        "items": [[42, 1], [43, 0]],
        "deliveries": 2,
        "traceparent": "00-aa-bb-01",
        "deaths": ["worker.3.executions expired at 2026-01-02T03:04:00+00:00"],
    }


def test_a_hundred_items_are_carried_and_one_more_is_refused() -> None:
    hundred = tuple((2**63 - 1, number) for number in range(100))
    assert len(encode(replace(MESSAGE, items=hundred))) < ENVELOPE_BYTES_MAX
    with pytest.raises(UnreadableMessage, match="at most 100 items"):
        encode(replace(MESSAGE, items=(*hundred, (1, 1))))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"{}",
        fields(extra=1),
        fields(version=0),
        fields(version="2"),
        fields(message_id=12),
        fields(message_id="twelve"),
        fields(items=[[1]]),
        fields(items=[[1, -1]]),
        fields(items=[["1", 0]]),
        fields(items=[[2**63, 0]]),
        fields(items=[[1, 1]] * 101),
        fields(type=""),
        fields(deliveries=-1),
        fields(timestamp="yesterday"),
        fields(timestamp="2026-01-02T03:04:05"),
        encode(MESSAGE) + b" " * ENVELOPE_BYTES_MAX,
        b"[" * 10_000,
    ],
    ids=repr,
)
def test_anything_else_is_unreadable(body: bytes) -> None:
    with pytest.raises(UnreadableMessage):
        decode(body)


@pytest.mark.parametrize(
    "body",
    [fields(version=2), fields(version=2, tenant="x"), fields(version=3, items={}), b'{"version": 2}'],
    ids=repr,
)
def test_a_newer_version_is_told_from_what_is_no_message_at_all(body: bytes) -> None:
    with pytest.raises(NewerMessage, match="reads message version 1, not"):
        decode(body)


@pytest.mark.parametrize("body", [fields(version=0), fields(extra=1), b'{"version": "2"}', b'{"version": 2'], ids=repr)
def test_what_is_merely_wrong_is_not_taken_for_newer(body: bytes) -> None:
    with pytest.raises(UnreadableMessage) as raised:
        decode(body)
    assert not isinstance(raised.value, NewerMessage)


def test_an_envelope_that_grew_too_large_is_refused_before_it_is_sent() -> None:
    with pytest.raises(UnreadableMessage, match="65536 bytes"):
        encode(replace(MESSAGE, deaths=("x" * ENVELOPE_BYTES_MAX,)))
