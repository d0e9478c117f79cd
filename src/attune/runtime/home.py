"""The one directory that holds everything of an installation, and what lies where in it."""

import contextlib
import os
import secrets
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from attune.runtime.postgres_server import PostgresServer, ServerPlan
from attune.runtime.secret import Secret
from attune.runtime.settings import Settings

PRIVATE: Final = 0o700
# The account that PostgreSQL runs under must pass through, but needs not look around.
PASSABLE: Final = 0o711
OPEN: Final = 0o755
SECRET_FILE: Final = 0o600
PASSWORD_BYTES: Final = 24
SECRET_BYTES_MAX: Final = 4096  # A longer file is surely not the secret that was meant.


class HomeUnusable(Exception):
    """The home cannot be used; the message names the place and the cure."""


@dataclass(frozen=True, slots=True)
class Home:
    """Where each thing of an installation lies."""

    root: Path

    @property
    def config(self) -> Path:
        return self.root / "config.yaml"

    @property
    def secrets(self) -> Path:
        return self.root / "secrets"

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def packs(self) -> Path:
        """The contents of installed packs, where workers find them."""
        return self.data / "packs"

    @property
    def environments(self) -> Path:
        """What packs need besides their own files, built by workers; whatever is removed here is built again."""
        return self.data / "environments"

    @property
    def key(self) -> Path:
        """What secrets at rest are sealed with, unless the settings name another file."""
        return self.secrets / "master.key"

    @property
    def database_password(self) -> Path:
        return self.secrets / "database_password"

    @property
    def cli_token(self) -> Path:
        return self.secrets / "cli_token"

    @property
    def lock(self) -> Path:
        """Held by the one supervisor of this home; its content is that process's id."""
        return self.run / "supervisor.lock"

    @property
    def url(self) -> Path:
        """Where the API of the running platform listens."""
        return self.run / "url"

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"


def prepare_home(home: Home) -> None:
    """Create what is missing; what exists keeps its mode, except that secrets are closed to others."""
    as_root = os.geteuid() == 0
    try:
        _make(home.root, OPEN if as_root else PRIVATE)
        for directory in (home.data, home.run):
            _make(directory, PASSABLE if as_root else PRIVATE)
        for directory in (home.secrets, home.logs):
            _make(directory, PRIVATE)
        home.secrets.chmod(PRIVATE)
        with home.lock.open("a", encoding="utf-8"):
            pass  # Proves that files can be written, not only that directories exist.
    except OSError as error:
        raise unusable(home, error) from error


def unusable(home: Home, error: OSError) -> HomeUnusable:
    place = error.filename or home.root
    reason = error.strerror or str(error)
    return HomeUnusable(
        f"cannot write to {place}: {reason}. Make {home.root} writable, or choose another home with ATTUNE_HOME"
    )


def keep_secret(path: Path, secret: str) -> None:
    """Write a secret that only its owner may read; a crash in the middle leaves the earlier one."""
    descriptor, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")  # Made with mode 0600.
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(f"{secret}\n")
            file.flush()
            os.fsync(file.fileno())
        Path(aside).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(aside).unlink()
        raise


def read_secret(path: Path) -> str | None:
    """What the file holds, without its line break; None if there is none."""
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(SECRET_BYTES_MAX).strip() or None
    except FileNotFoundError:
        return None


def ensure_secret(path: Path) -> str:
    """The secret in the file; drawn once, and never again."""
    found = read_secret(path)
    if found is not None:
        return found
    drawn = secrets.token_urlsafe(PASSWORD_BYTES)
    keep_secret(path, drawn)
    return drawn


def embedded_server(settings: Settings, home: Home) -> PostgresServer | None:
    """The home's own PostgreSQL, started or not; None where the settings name another one."""
    if settings.database.url is not None:
        return None
    password = read_secret(home.database_password)
    if password is None:
        raise HomeUnusable(
            f"{home.database_password} does not exist: nothing was ever started in {home.root}. "
            "Run `attune up`, set ATTUNE_HOME to a home that was, or name a database with ATTUNE__DATABASE__URL"
        )
    plan = ServerPlan(
        home=home.root,
        data=home.data / "postgres",
        log=home.log("postgres"),
        password=password,
        user=settings.database.embedded_user,
        bin_dir=settings.database.bin_dir,
    )
    return PostgresServer(plan)


def database_url(settings: Settings, home: Home) -> str:
    """The libpq URL of the platform's database, password included."""
    given = settings.database.full_url
    if given is not None:
        return given.reveal()
    server = embedded_server(settings, home)
    assert server is not None  # noqa: S101  Without a URL there is always an embedded server.
    return server.url


def with_database(settings: Settings, home: Home) -> Settings:
    """The same settings with the database's URL filled in, so that whoever gets them needs no home to reach it."""
    url = Secret(database_url(settings, home))
    return replace(settings, database=replace(settings.database, url=url, password=None))


def _make(directory: Path, mode: int) -> None:
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
        # Not through mkdir, whose mode is cut down by the umask.
        each.chmod(mode if each == directory else OPEN if os.geteuid() == 0 else PRIVATE)
