"""The words of one `run`: what a container gets, and above all what it does not get."""

import resource
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from attune.domain.definitions import ContainerLimits
from attune.worker.containers.engine import Engine

# Where a container finds what it shares with the worker, and the content of its pack.
SHARED: Final = "/attune"
PACK: Final = "/pack"
HOME: Final = "/tmp"  # noqa: S108  inside the container, where nobody else is
TEMPORARY_MB: Final = 64
# Said aloud, because the usual ones may be more than a restricted machine can give.
_LIMITS: Final = {"nofile": (resource.RLIMIT_NOFILE, 1024), "nproc": (resource.RLIMIT_NPROC, 4096)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounts:
    """What of the machine can be seen inside."""

    shared: Path
    pack: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One container to run; without `words` the image says what."""

    image: str
    limits: ContainerLimits
    labels: Sequence[str]
    words: Sequence[str] = ()
    mounts: Mounts | None = None
    id_file: Path | None = None
    environment_file: Path | None = None


def run_words(engine: Engine, container: Container) -> list[str]:
    """Everything after the program's name."""
    limits = container.limits
    words = ["run", "--rm", "--interactive", *(("--init",) if engine.init else ())]
    words += ["--pull", str(limits.pull), "--log-driver", "none", *engine.account]
    # Nothing of the image can be changed, and nothing more be gained than it starts with.
    words += ["--read-only", "--tmpfs", f"{HOME}:rw,nosuid,nodev,size={TEMPORARY_MB}m", "--workdir", HOME]
    words += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--network", str(limits.network)]
    words += ["--memory", f"{limits.memory_mb}m", "--pids-limit", str(limits.processes)]
    if limits.cpus is not None:
        words += ["--cpus", f"{limits.cpus:g}"]
    words += _each("--ulimit", _ulimits()) + _each("--label", container.labels)
    if container.id_file is not None:
        words += ["--cidfile", str(container.id_file)]
    if container.environment_file is not None:
        # Not as words: every account of the machine can read those.
        words += ["--env-file", str(container.environment_file)]
    words += _mount_words(container.mounts)
    if container.words:
        words += ["--entrypoint", container.words[0]]
    return [*words, container.image, *container.words[1:]]


def _mount_words(mounts: Mounts | None) -> list[str]:
    if mounts is None:
        return []
    # The letters are for machines with SELinux, which otherwise refuses; elsewhere they mean nothing.
    words = ["--volume", f"{mounts.shared}:{SHARED}:rw,Z"]
    return words if mounts.pack is None else [*words, "--volume", f"{mounts.pack}:{PACK}:ro,z"]


def environment_lines(variables: Mapping[str, str]) -> bytes:
    """One variable for each line; a value with a newline cannot be written and has none."""
    return "".join(f"{name}={value}\n" for name, value in variables.items() if "\n" not in value).encode()


def _ulimits() -> list[str]:
    limits = ["core=0:0"]
    for name, (number, wanted) in _LIMITS.items():
        _, most = resource.getrlimit(number)
        given = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        limits.append(f"{name}={given}:{given}")
    return limits


def _each(option: str, values: Sequence[str]) -> list[str]:
    return [word for value in values for word in (option, value)]
