#!/usr/bin/env python3
"""Fetches a server from Debian's packages and unpacks it in the cache directory, installing nothing.

`unpack.py rabbitmq` prints the directory that stands for `/`. Works for root and everyone else alike: apt gets lists
and a cache of its own, and the packages are opened with `dpkg-deb -x`. What the system already has installed (system
libraries, or the server itself) is used as it is. The cache directory is $ATTUNE_CACHE, or the user's usual one.
"""

from __future__ import annotations

import fcntl
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

RECIPE = 1
"""Counts up when trees are unpacked differently, so that older ones are not taken for new ones."""

DOWNLOAD_SECONDS = 600
"""After this long a mirror that answers nothing counts as unreachable."""


@dataclass(frozen=True, kw_only=True)
class Server:
    package: str
    """What apt is asked for."""
    beside: Sequence[str] = ()
    """Packages it only recommends and cannot do without here."""
    program: str
    """Where the server's program is, below `/` or below the unpacked tree."""


SERVERS = {
    "rabbitmq": Server(package="rabbitmq-server", program="usr/lib/rabbitmq/bin/rabbitmq-server"),
    "postgresql-15": Server(package="postgresql-15", program="usr/lib/postgresql/15/bin/postgres"),
    "chromium": Server(package="chromium", program="usr/bin/chromium"),
    "podman": Server(package="podman", beside=("runc", "catatonit"), program="usr/bin/podman"),
    "docker": Server(package="docker.io", beside=("containerd", "runc"), program="usr/sbin/dockerd"),
    "busybox-static": Server(package="busybox-static", program="bin/busybox"),
}


class CannotUnpack(Exception):
    """The server cannot be had on this machine; says why and what would help."""


def unpack(name: str) -> Path:
    """The directory that stands for `/`: the system's own, one from the cache, or one made now."""
    server = SERVERS[name]
    if Path("/", server.program).exists():
        return Path("/")
    root = cache_directory() / f"{name}-{system_name()}-{RECIPE}"
    if not root.exists():
        with only_one_at_a_time(root):
            if not root.exists():
                make_tree(name, root)
    return root


def cache_directory() -> Path:
    """Root's is one that other users can enter, because PostgreSQL refuses to run as root."""
    everyone = Path("/var/cache/attune") if os.getuid() == 0 else None
    home = os.environ.get("HOME")
    candidates = [
        Path(os.environ["ATTUNE_CACHE"]) if os.environ.get("ATTUNE_CACHE") else None,
        Path(os.environ["XDG_CACHE_HOME"], "attune") if os.environ.get("XDG_CACHE_HOME") else None,
        everyone,
        Path(home, ".cache", "attune") if home else None,
        Path(tempfile.gettempdir(), f"attune-cache-{os.getuid()}"),
    ]
    for candidate in filter(None, candidates):
        if is_ours(candidate):
            return candidate
    raise CannotUnpack("no directory to keep servers in; set ATTUNE_CACHE to one that can be written")


def is_ours(directory: Path) -> bool:
    """A directory of that name may belong to somebody else, who could put anything into it."""
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        return os.access(directory, os.W_OK) and directory.stat().st_uid == os.getuid()
    except OSError:
        return False


def system_name() -> str:
    """Packages of one release do not fit another's libraries."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        release = {}
    return f"{release.get('ID', 'linux')}{release.get('VERSION_ID', '')}-{platform.machine()}"


@contextmanager
def only_one_at_a_time(root: Path) -> Iterator[None]:
    with root.with_name(f"{root.name}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def make_tree(name: str, root: Path) -> None:
    """Everything happens beside the final place; the rename at the end makes it visible whole or not at all."""
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            package = SERVERS[name].package
            raise CannotUnpack(f"{program} is not on this machine; install {package} by its own means to use it")
    with tempfile.TemporaryDirectory(prefix=f"{root.name}.", dir=root.parent) as work:
        tree = Path(work, "tree")
        tree.mkdir()
        for archive in download([SERVERS[name].package, *SERVERS[name].beside], Path(work)):
            run(["dpkg-deb", "-x", str(archive), str(tree)], f"{archive.name} cannot be unpacked")
        if not (tree / SERVERS[name].program).exists():
            raise CannotUnpack(f"the packages of {name} hold no {SERVERS[name].program}")
        move_erlang(tree, root)
        tree.rename(root)


def download(packages: Sequence[str], work: Path) -> list[Path]:
    """The packages and whatever they need that this system has not got."""
    package = packages[0]
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (work / folder).mkdir(parents=True)
    apt = ["apt-get", "-qq", "-y"]
    for option in (
        f"Dir::State={work}/state",
        "Dir::State::status=/var/lib/dpkg/status",
        f"Dir::Cache={work}/cache",
        "Debug::NoLocking=1",
        "APT::Sandbox::User=root",
        "Acquire::Retries=2",
        "Acquire::Languages=none",
    ):
        apt += ["-o", option]
    say(f"fetching {package} and what it needs")
    # One unreachable source among several must not matter: whether the package is found decides.
    subprocess.run([*apt, "update"], stdout=sys.stderr, timeout=DOWNLOAD_SECONDS, check=False)
    hint = f"{package} cannot be downloaded; install it by other means, or make apt's sources reachable"
    run([*apt, "--no-install-recommends", "--download-only", "install", *packages], hint)
    return sorted((work / "cache" / "archives").glob("*.deb"))


def move_erlang(tree: Path, root: Path) -> None:
    """Erlang's starter knows its place by one absolute path."""
    starter = tree / "usr/lib/erlang/bin/erl"
    if starter.exists():
        starter.write_text(
            re.sub(r'ROOTDIR="?/usr/lib/erlang"?', f'ROOTDIR="{root}/usr/lib/erlang"', starter.read_text())
        )


def run(command: Sequence[str], hint: str) -> None:
    try:
        done = subprocess.run(command, stdout=sys.stderr, timeout=DOWNLOAD_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise CannotUnpack(f"{hint} (no answer within {DOWNLOAD_SECONDS} s)") from error
    if done.returncode != 0:
        raise CannotUnpack(hint)


def say(message: str) -> None:
    print(f"unpack: {message}", file=sys.stderr, flush=True)


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1] not in SERVERS:
        say(f"usage: unpack.py {'|'.join(SERVERS)}")
        return 2
    try:
        root = unpack(sys.argv[1])
    except CannotUnpack as error:
        say(str(error))
        return 1
    if root == Path("/"):
        say(f"{sys.argv[1]} is installed here and used as it is")
    print(root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
