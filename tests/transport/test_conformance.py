"""What every transport promises; the same suite runs on each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from attune.domain.messages import Message
from attune.storage.database import Database
from attune.storage.tx import Tx
from attune.transport.limits import Limits
from tests.transport.station import (
    EVENTS,
    QUICK,
    Station,
    count,
    leave_effect,
    wait_for_effects,
    wait_for_rows,
)


async def test_a_committed_message_is_handled(here: Station) -> None:
    async with here.consuming(EVENTS, leave_effect):
        await here.announce([(7, 0)])
        assert await wait_for_effects(here.database, 1) == [7]
        await wait_for_rows(here.database, "outbox", 0)


async def test_a_message_announced_before_its_consumer_exists_is_handled(here: Station) -> None:
    await here.announce([(7, 0)])
    async with here.consuming(EVENTS, leave_effect):
        assert await wait_for_effects(here.database, 1) == [7]
