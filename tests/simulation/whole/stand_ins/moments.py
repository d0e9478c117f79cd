"""Seconds of the store's clock as moments, where the original has a timestamp."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def moment(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


def seconds_of(at: datetime) -> float:
    return (at - EPOCH).total_seconds()
