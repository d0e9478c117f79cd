"""A docker daemon for tests, with everything of it in one temporary directory; only root can start one."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
from asyncio.subprocess import DEVNULL, STDOUT
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.witness.podman import IMAGE, busybox_image, unmount_below
from tools.unpack import unpack

START_SECONDS = 60
STOP_SECONDS = 30


class DockerFailed(Exception):
    """The daemon does not come up; carries the end of its log."""


@dataclass(kw_only=True)
class Docker:
    root: Path
    directory: Path

    @property
    def environment(self) -> Mapping[str, str]:
        """What a worker's environment would hold."""
        return {
            "PATH": f"{self.root}/usr/bin:/usr/bin:/bin",
            "HOME": str(self.directory),
            "DOCKER_HOST": f"unix://{self.directory}/socket",
        }

    def answers(self) -> bool:
        return self.call("ps", "--quiet").returncode == 0

    def call(self, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        program = f"{self.root}/usr/bin/docker"
        return subprocess.run(
            [program, *words], input=stdin, capture_output=True, timeout=60, check=False, env=dict(self.environment)
        )

    async def start(self) -> asyncio.subprocess.Process:
        libraries = "" if self.root == Path("/") else ":".join(map(str, self.root.glob("usr/lib/*-linux-gnu*")))
        with (self.directory / "log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                f"{self.root}/usr/sbin/dockerd",
                *("--data-root", f"{self.directory}/data", "--exec-root", f"{self.directory}/run"),
                *("--host", f"unix://{self.directory}/socket", "--pidfile", f"{self.directory}/pid"),
                *("--storage-driver", "vfs", "--exec-opt", "native.cgroupdriver=cgroupfs"),
                # Nothing of the machine's network is touched.
                *("--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"),
                env={
                    "PATH": f"{self.root}/usr/bin:{self.root}/usr/sbin:/usr/sbin:/usr/bin:/sbin:/bin",
                    "LD_LIBRARY_PATH": libraries,
                    "HOME": str(self.directory),
                },
                stdin=DEVNULL,
                stdout=log,
                stderr=STDOUT,
                start_new_session=True,
            )


@asynccontextmanager
async def a_docker() -> AsyncIterator[Docker]:
    """Raises CannotUnpack or DockerFailed where there can be none."""
    root = await asyncio.to_thread(unpack, "docker")
    # Short, because the daemon makes sockets below it.
    with tempfile.TemporaryDirectory(prefix="attune-docker-", ignore_cleanup_errors=True) as directory:
        docker = Docker(root=root, directory=Path(directory))
        daemon = await docker.start()
        try:
            await _until_answered(docker, daemon)
            await asyncio.to_thread(docker.call, "import", "-", IMAGE, stdin=busybox_image())
            yield docker
        finally:
            await _stop(docker, daemon)


async def _until_answered(docker: Docker, daemon: asyncio.subprocess.Process) -> None:
    deadline = asyncio.get_running_loop().time() + START_SECONDS
    while not await asyncio.to_thread(docker.answers):
        if daemon.returncode is not None or asyncio.get_running_loop().time() > deadline:
            raise DockerFailed((docker.directory / "log").read_text(errors="replace")[-2000:])
        await asyncio.sleep(0.1)


async def _stop(docker: Docker, daemon: asyncio.subprocess.Process) -> None:
    if daemon.returncode is None:
        with suppress(OSError, subprocess.TimeoutExpired):
            left = docker.call("ps", "--all", "--quiet").stdout.decode().split()
            if left:
                docker.call("rm", "--force", *left)
        daemon.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(daemon.wait(), STOP_SECONDS)
        except TimeoutError:
            with suppress(ProcessLookupError):
                os.killpg(daemon.pid, signal.SIGKILL)
            await daemon.wait()
    await asyncio.to_thread(unmount_below, docker.directory)
