"""Small wheels made on the spot, and the lock that names them: packages without a network."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path


def make_wheel(folder: Path, name: str, version: str, files: Mapping[str, str]) -> str:
    """Put a wheel into the folder; returns its line in a lock."""
    folder.mkdir(parents=True, exist_ok=True)
    about = f"{name}-{version}.dist-info"
    content = {
        **files,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},sha256={_digest(text)},{len(text.encode())}\n" for path, text in content.items())
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for inner, text in {**content, f"{about}/RECORD": f"{record}{about}/RECORD,,\n"}.items():
            wheel.writestr(inner, text)
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


def offline(folder: Path) -> dict[str, str]:
    """Variables that make uv look into this folder and nowhere else."""
    return {"UV_NO_INDEX": "1", "UV_FIND_LINKS": str(folder)}


def make_tarball(path: Path, name: str, version: str, script: str) -> str:
    """Make a package for npm; returns its integrity as a lock names it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files = {"package.json": f'{{"name": "{name}", "version": "{version}", "main": "index.js"}}', "index.js": script}
    with tarfile.open(path, "w:gz") as tarball:
        for inner, text in files.items():
            entry = tarfile.TarInfo(f"package/{inner}")
            entry.size = len(text.encode())
            tarball.addfile(entry, io.BytesIO(text.encode()))
    return f"sha512-{base64.b64encode(hashlib.sha512(path.read_bytes()).digest()).decode()}"


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
