"""What the launcher is asked to start, and how it is written into a request."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

# Of `clone`, as the kernel numbers them.
CLONE_NEWNS: Final = 0x00020000
CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWPID: Final = 0x20000000
# The kernel itself takes single words of up to 128 KiB; all of them and the environment together must fit here.
REQUEST_BYTES_MAX: Final = 128 * 1024


class OrderTooLarge(Exception):
    """The command and its environment are larger than a request may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Whom a process belongs to."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Walls:
    """What a process is shut in by; nothing but the limits every process has, unless more is said."""

    # None leaves the worker's own.
    account: Account | None = None
    # By the number of the resource.
    limits: Mapping[int, int] = field(default_factory=dict)
    # The namespaces it gets to itself, as flags of `clone`.
    spaces: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A command, where and as what it is to run."""

    words: Sequence[str]
    environment: Mapping[str, str]
    directory: Path
    walls: Walls = field(default_factory=Walls)


def write_order(order: Order, key: int) -> bytes:
    """Fields `name=value`, divided by zero bytes, which none of the values can contain."""
    walls = order.walls
    fields = [f"key={key}", f"directory={order.directory}"]
    if walls.account is not None:
        fields.append(f"account={walls.account.uid}:{walls.account.gid}")
    if walls.spaces:
        fields.append(f"spaces={walls.spaces}")
    fields += [f"limit={number}:{most}" for number, most in walls.limits.items()]
    fields += [f"word={word}" for word in order.words]
    fields += [f"env={name}={value}" for name, value in order.environment.items()]
    if any("\0" in each for each in fields):
        raise ValueError("a command or its environment contains a zero byte")
    content = "\0".join(fields).encode(errors="surrogateescape")
    if len(content) > REQUEST_BYTES_MAX:
        raise OrderTooLarge(f"the command and its environment take more than {REQUEST_BYTES_MAX} bytes")
    return content
