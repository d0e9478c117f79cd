"""What the peers' scripts share: an effect is a line in a file, and a producer says when it sent its first request."""

import json
import os
import sys
import time
from functools import cache

ACTIONS = 100
BATCH = 100


@cache
def _ledger() -> int:
    return os.open(os.environ["PEER_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note(number: int) -> None:
    """The only thing a task does; a line this short is appended whole."""
    os.write(_ledger(), f"{number} {time.time()}\n".encode())


def asked() -> tuple[range, int, int]:
    """From the command line: which numbers to send, over how many tasks, at which limit (0: none)."""
    first, count, actions, limit = (int(word) for word in sys.argv[2:6])
    return range(first, first + count), actions, limit


def begin() -> None:
    """Just before the first request, so that starting the producer is not counted."""
    print(json.dumps({"began": time.time()}), flush=True)


def is_producer() -> bool:
    return sys.argv[1:2] == ["send"]
