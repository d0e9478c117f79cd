"""A podman for tests: its own images, containers and settings in one temporary directory, nothing of it installed.

Where podman is not installed it is unpacked into the cache directory. The settings are those a restricted machine
needs: no cgroups of systemd, no overlay file system, no more open files than there may be.
"""

from __future__ import annotations

import asyncio
import io
import subprocess
import tarfile
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tools.unpack import unpack

IMAGE = "localhost/attune-busybox:1"
APPLETS = (
    *("cat", "dd", "echo", "env", "false", "head", "id", "kill", "ls", "nc", "printf", "ps", "pwd", "sh", "sleep"),
    *("stat", "tail", "touch", "tr", "true", "wget"),
)
CURE = (
    "install podman, runc, catatonit and busybox-static, or let apt-get reach its sources;"
    " for another account than root podman also needs uidmap and a range in /etc/subuid"
)
FOLDERS = ("bin", "dev", "etc", "proc", "run", "sys", "tmp", "attune", "pack")


def busybox_image() -> bytes:
    """A file system of nothing but busybox, for `import`."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name in FOLDERS:
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(folder)
        tar.add(unpack("busybox-static") / "bin/busybox", "bin/busybox")
        for name in APPLETS:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    return archive.getvalue()


class PodmanFailed(Exception):
    """It refused; carries what it said."""


@dataclass(kw_only=True)
class Podman:
    root: Path
    directory: Path

    @property
    def environment(self) -> Mapping[str, str]:
        """What a worker's environment would hold; the program in its path knows the rest."""
        return {"PATH": f"{self.directory}/bin:/usr/bin:/bin", "HOME": str(self.directory)}

    def write_files(self) -> None:
        for folder in ("bin", "images", "run", "temporary", ".config/containers"):
            (self.directory / folder).mkdir(parents=True)
        (self.directory / ".config/containers/policy.json").write_text(
            '{"default": [{"type": "insecureAcceptAnything"}]}'
        )
        (self.directory / "storage.conf").write_text(
            f'[storage]\ndriver = "vfs"\ngraphroot = "{self.directory}/images"\nrunroot = "{self.directory}/run"\n'
            # Another account than root may have no more than one number to give files to.
            '[storage.options.vfs]\nignore_chown_errors = "true"\n'
        )
        (self.directory / "containers.conf").write_text(self._configuration())
        # Podman does not hand all of its environment on to the program that watches a container and cleans up after it.
        self._write_program("conmon", f"{self.root}/usr/bin/conmon")
        self._write_program("podman", f"{self.root}/usr/bin/podman")

    def _configuration(self) -> str:
        runtime = next(path for path in self._candidates("runc", "crun") if path.exists())
        return (
            "[containers]\n"
            'default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]\n'
            "[engine]\n"
            'cgroup_manager = "cgroupfs"\n'
            'events_logger = "none"\n'
            f'runtime = "{runtime.name}"\n'
            f'conmon_path = ["{self.directory}/bin/conmon"]\n'
            f'tmp_dir = "{self.directory}/run/libpod"\n'
            f'init_path = "{self.root}/usr/bin/catatonit"\n'
            "[engine.runtimes]\n"
            f'{runtime.name} = ["{runtime}"]\n'
            "[network]\n"
            f'cni_plugin_dirs = ["{self.root}/usr/lib/cni"]\n'
            f'network_config_dir = "{self.directory}/networks"\n'
        )

    def _candidates(self, *names: str) -> list[Path]:
        return [self.root / folder / name for name in names for folder in ("usr/bin", "usr/sbin")]

    def _write_program(self, name: str, program: str) -> None:
        libraries = "" if self.root == Path("/") else ":".join(map(str, self.root.glob("usr/lib/*-linux-gnu*")))
        script = self.directory / "bin" / name
        script.write_text(
            "#!/bin/sh\n"
            f"export LD_LIBRARY_PATH='{libraries}' HOME='{self.directory}' TMPDIR='{self.directory}/temporary'\n"
            f"export XDG_RUNTIME_DIR='{self.directory}/run'\n"
            f"export CONTAINERS_CONF='{self.directory}/containers.conf'\n"
            f"export CONTAINERS_STORAGE_CONF='{self.directory}/storage.conf'\n"
            f"export PATH='{self.root}/usr/bin:{self.root}/usr/sbin:/usr/sbin:/usr/bin:/sbin:/bin'\n"
            f"exec '{program}' \"$@\"\n"
        )
        script.chmod(0o755)

    def call(self, *words: str, stdin: bytes = b"") -> str:
        done = subprocess.run(
            [f"{self.directory}/bin/podman", *words], input=stdin, capture_output=True, timeout=120, check=False
        )
        if done.returncode != 0:
            raise PodmanFailed(f"podman {' '.join(words)}: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout.decode()

    def make_image(self) -> None:
        self.call("import", "-", IMAGE, stdin=busybox_image())

    def containers(self) -> list[str]:
        return self.call("ps", "--all", "--quiet").split()

    def clear(self) -> None:
        with suppress(PodmanFailed, OSError, subprocess.TimeoutExpired):
            self.call("rm", "--all", "--force", "--time", "0")
        unmount_below(self.directory)


def unmount_below(directory: Path) -> None:
    """What a killed container left mounted would keep the directory from being removed."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in (each for each in mounts if each.startswith(f"{directory}/")):
        subprocess.run(["/bin/umount", "--lazy", mount], check=False, capture_output=True)


@asynccontextmanager
async def a_podman() -> AsyncIterator[Podman]:
    """Raises CannotUnpack or PodmanFailed where there can be none."""
    root = await asyncio.to_thread(unpack, "podman")
    # Short, because podman makes sockets below it.
    with tempfile.TemporaryDirectory(prefix="attune-podman-", ignore_cleanup_errors=True) as directory:
        podman = Podman(root=root, directory=Path(directory))
        podman.write_files()
        try:
            await asyncio.to_thread(podman.make_image)
            yield podman
        finally:
            await asyncio.to_thread(podman.clear)
