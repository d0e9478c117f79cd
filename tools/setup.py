#!/usr/bin/env python3
"""Builds `.venv` in this clone from the hash-checked locks; a second call with nothing changed is instant.

`setup.py runtime` installs what Attune needs to run, `setup.py dev` also what its tests and checks need, and
`setup.py lock` writes the locks afresh. Packages come through uv, which is installed first from the same lock, and
through pip where uv fails. Only the standard library is used, in a dialect that older interpreters can read, so that
they can say that they are too old.
"""

from __future__ import annotations

import ast
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
OLDEST = (3, 11)
NEWEST = (3, 14)
KINDS = ("runtime", "dev")
DEBIAN_PACKAGE = "python3-venv"

# Settings that would send packages somewhere other than the environment.
MISLEADING = ("PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_REQUIRE_VIRTUALENV", "PYTHONPATH", "PYTHONHOME")

# pip's name of a setting, uv's variable for it, and what uv puts between several values.
HANDED_OVER = (
    ("index-url", "UV_DEFAULT_INDEX", " "),
    ("extra-index-url", "UV_INDEX", " "),
    ("find-links", "UV_FIND_LINKS", ","),
    ("trusted-host", "UV_INSECURE_HOST", " "),
    ("cert", "SSL_CERT_FILE", " "),
    ("timeout", "UV_HTTP_TIMEOUT", " "),
    ("default-timeout", "UV_HTTP_TIMEOUT", " "),
    ("proxy", "ALL_PROXY", " "),
)


def fail(message: str) -> NoReturn:
    print(f"setup: {message}", file=sys.stderr)
    sys.exit(1)


def say(message: str) -> None:
    print(f"setup: {message}", file=sys.stderr, flush=True)


def lock_file(kind: str) -> Path:
    return ROOT / "requirements" / f"{kind}.txt"


def fingerprint(kind: str) -> str:
    """What the environment was made from: the lock, the interpreter, and the place (scripts hold absolute paths)."""
    parts = (lock_file(kind).read_bytes(), os.fsencode(PYTHON.resolve()), os.fsencode(ROOT))
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def stamp(kind: str) -> Path:
    return VENV / f"attune-{kind}.stamp"


def is_current(kind: str) -> bool:
    try:
        return os.access(PYTHON, os.X_OK) and stamp(kind).read_text() == fingerprint(kind)
    except OSError:
        return False


def write_stamps(kind: str) -> None:
    """The dev lock holds everything in the runtime lock, so that after `make test` a `make up` has nothing to do."""
    for each in KINDS[: KINDS.index(kind) + 1]:
        stamp(each).write_text(fingerprint(each))


# Interpreters


def ask(python: str) -> tuple[tuple[int, int], str, bool] | None:
    """Version, real path and "can make environments" of an interpreter; None if it does not run."""
    code = (
        "import sys, importlib.util as u; "
        "print(sys.version_info[0], sys.version_info[1], int(bool(u.find_spec('ensurepip') and u.find_spec('venv'))));"
        "print(sys.executable)"
    )
    try:
        done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    numbers, path = done.stdout.splitlines()
    major, minor, able = (int(word) for word in numbers.split())
    return (major, minor), path, bool(able)


def choose_python() -> str:
    """The newest interpreter on PATH that Attune supports and that can make environments."""
    names = [f"python3.{minor}" for minor in range(NEWEST[1], OLDEST[1] - 1, -1)]
    unable = ""
    for name in [*names, "python3"]:
        found = shutil.which(name)
        answer = ask(found) if found else None
        if answer is None or not OLDEST <= answer[0] <= NEWEST:
            continue
        if answer[2]:
            return answer[1]
        unable = unable or answer[1]
    if unable:
        fail(
            f"{unable} cannot make environments: its module ensurepip (or venv) is missing. "
            f"On Debian and Ubuntu: apt-get install {DEBIAN_PACKAGE}"
        )
    fail(f"no Python {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]} found on PATH (this one is {sys.version})")


def make_environment() -> None:
    """Keep an environment whose interpreter still runs; make a new one otherwise."""
    answer = ask(str(PYTHON)) if os.access(PYTHON, os.X_OK) else None
    if answer is not None and OLDEST <= answer[0] <= NEWEST:
        return
    python = choose_python()
    say(f"making {VENV} with {python}")
    done = subprocess.run([python, "-I", "-m", "venv", "--clear", str(VENV)], check=False)
    if done.returncode != 0:
        fail(f"`{python} -m venv` failed. On Debian and Ubuntu it may need: apt-get install {DEBIAN_PACKAGE}")


# Installing


def clean_environment() -> dict[str, str]:
    environment = {key: value for key, value in os.environ.items() if key not in MISLEADING}
    environment.setdefault("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    environment["PIP_ROOT_USER_ACTION"] = "ignore"
    if not os.access(environment.get("XDG_CACHE_HOME") or environment.get("HOME") or "/nowhere", os.W_OK):
        environment.setdefault("PIP_NO_CACHE_DIR", "1")
    return environment


def pip(*arguments: str) -> list[str]:
    return [str(PYTHON), "-I", "-m", "pip", *arguments]


def read_pip_settings() -> dict[str, str]:
    """pip's own view of its files and variables; the nearest place wins: variables, then [install], then [global]."""
    done = subprocess.run(pip("config", "list"), capture_output=True, text=True, env=clean_environment(), check=False)
    settings: dict[str, tuple[int, str]] = {}
    order = {"global": 0, "install": 1, ":env:": 2}
    for line in done.stdout.splitlines():
        name, separator, value = line.partition("=")
        place, _, key = name.rpartition(".")
        rank = order.get(place, -1)
        if separator and rank >= settings.get(key, (0, ""))[0]:
            settings[key] = (rank, str(ast.literal_eval(value)))
    return {key: value for key, (_, value) in settings.items()}


def uv_environment() -> dict[str, str]:
    """uv does not read pip's configuration: hand it over, unless uv has its own."""
    environment = clean_environment()
    settings = read_pip_settings()
    for key, variable, separator in HANDED_OVER:
        if settings.get(key):
            environment.setdefault(variable, separator.join(settings[key].split()))
    if settings.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        environment.setdefault("UV_NO_INDEX", "1")
    environment.setdefault("UV_CACHE_DIR", str(cache_directory()))
    environment.setdefault("UV_NO_CONFIG", "1")
    return environment


def cache_directory() -> Path:
    """uv's usual cache, or a private one in the temporary directory for someone without a home."""
    places = ((os.environ.get("XDG_CACHE_HOME"), "uv"), (os.environ.get("HOME"), ".cache/uv"))
    candidates = [Path(place, below) for place, below in places if place]
    candidates.append(Path(tempfile.gettempdir(), f"attune-uv-{os.getuid()}"))
    for candidate in candidates:
        try:
            candidate.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            continue
        # A directory of that name may belong to somebody else, who could put anything into it.
        if os.access(candidate, os.W_OK) and candidate.stat().st_uid == os.getuid():
            return candidate
    return Path(tempfile.mkdtemp(prefix="attune-uv-"))


def lock_entry(kind: str, package: str) -> str:
    """The lines of one package in a lock: its version and its hashes."""
    lines = lock_file(kind).read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"{package}=="))
    end = next((n for n in range(start + 1, len(lines)) if not lines[n].startswith(" ")), len(lines))
    return "\n".join(lines[start:end]) + "\n"


def install_uv(kind: str) -> bool:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as entry:
        entry.write(lock_entry(kind, "uv"))
        entry.flush()
        command = pip("install", "-q", "--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", entry.name)
        return subprocess.run(command, env=clean_environment(), check=False).returncode == 0


def install(kind: str) -> None:
    lock = str(lock_file(kind))
    # Only the larger lock may also remove: an environment that someone else filled must not lose its test tools.
    way = ["sync"] if kind == "dev" else ["install", "-r"]
    uv = [str(VENV / "bin" / "uv"), "pip", way[0], "-q", "--require-hashes", "--python", str(PYTHON), *way[1:], lock]
    # pip looks at every index for the wanted version, uv at the first that knows the package; the hashes make it safe.
    environment = {"UV_INDEX_STRATEGY": "unsafe-best-match", **uv_environment()}
    if install_uv(kind) and subprocess.run(uv, env=environment, check=False).returncode == 0:
        return
    say("uv did not manage; installing with pip, which takes longer")
    command = pip("install", "-q", "--require-hashes", "-r", lock)
    if subprocess.run(command, env=clean_environment(), check=False).returncode != 0:
        fail(
            "the packages could not be installed; the reason is above. Behind a mirror or proxy, tell pip about it "
            "(`pip config set global.index-url …`, PIP_INDEX_URL, HTTPS_PROXY); the same settings are given to uv"
        )


def point_to_source() -> None:
    for packages in VENV.glob("lib/python3*/site-packages"):
        (packages / "attune.pth").write_text(f"{ROOT / 'src'}\n")


def build(kind: str) -> None:
    started = time.monotonic()
    make_environment()
    # An environment for development stays one: `make up` must not take the test tools away.
    kind = "dev" if stamp("dev").exists() else kind
    say(f"installing requirements/{kind}.txt")
    install(kind)
    point_to_source()
    write_stamps(kind)
    say(f"{VENV} is ready ({time.monotonic() - started:.0f} s)")


def write_locks(options: list[str]) -> None:
    """Resolve pyproject.toml afresh, for every platform and interpreter at once; addresses stay out of the locks."""
    compile_lock = [
        str(VENV / "bin" / "uv"),
        "pip",
        "compile",
        "-q",
        "--generate-hashes",
        "--universal",
        "--all-extras",
    ]
    compile_lock += ["--python-version", f"{OLDEST[0]}.{OLDEST[1]}"]
    compile_lock += ["--no-header", "--no-emit-index-url", "--no-emit-find-links", *options]
    environment = uv_environment()
    for variable in ("UV_INDEX", "UV_FIND_LINKS"):
        # pip's extra places may hold a part of each release only, and the lock must hold the hashes of all its files.
        if variable not in os.environ:
            environment.pop(variable, None)
    for kind, groups in (("runtime", []), ("dev", ["--group", "dev"])):
        command = [*compile_lock, *groups, "pyproject.toml", "-o", f"requirements/{kind}.txt"]
        if subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode != 0:
            fail(f"requirements/{kind}.txt could not be resolved; the reason is above")


def main() -> None:
    if sys.argv[1:2] == ["lock"]:
        write_locks(sys.argv[2:])
        return
    kind = sys.argv[1] if len(sys.argv) > 1 else "runtime"
    if kind not in KINDS or len(sys.argv) > 2:
        fail(f"usage: setup.py [{'|'.join(KINDS)}|lock]")
    if is_current(kind):
        return
    held = os.open(str(ROOT), os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)  # two calls at once: the second waits, and then finds the work done
    if not is_current(kind):
        try:
            build(kind)
        except PermissionError as error:
            fail(f"cannot write {error.filename}: {error.strerror}. Is this clone yours?")


if __name__ == "__main__":
    main()
