"""Which version an upgrade begins with."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.upgrade.versions import GIT, MIGRATIONS, NotInHistory, choose_revision

AUTHOR = ("-c", "user.name=test", "-c", "user.email=test@example.org")


def git(clone: Path, *words: str) -> str:
    done = subprocess.run([GIT, *AUTHOR, "-C", str(clone), *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(clone: Path, path: str) -> str:
    file = clone / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(path)
    git(clone, "add", ".")
    git(clone, "commit", "-qm", path)
    return git(clone, "rev-parse", "HEAD")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    commit(tmp_path, f"{MIGRATIONS}/0001_first.sql")
    return tmp_path


def test_without_a_release_it_begins_before_the_newest_migration(clone: Path) -> None:
    before = commit(clone, "one.py")
    commit(clone, f"{MIGRATIONS}/0002_second.sql")
    commit(clone, "two.py")

    assert choose_revision("", clone=clone) == before


def test_it_begins_with_the_newest_release_that_this_is_not(clone: Path) -> None:
    git(clone, "tag", "v0.9.0")
    release = commit(clone, "one.py")
    git(clone, "tag", "v0.10.0")
    commit(clone, f"{MIGRATIONS}/0002_second.sql")
    git(clone, "tag", "v0.11.0")

    assert choose_revision("", clone=clone) == release


def test_it_begins_with_what_was_asked_for(clone: Path) -> None:
    first = git(clone, "rev-parse", "HEAD")
    commit(clone, "one.py")

    assert choose_revision("HEAD~1", clone=clone) == first


def test_a_shallow_clone_says_what_it_lacks(clone: Path) -> None:
    with pytest.raises(NotInHistory, match="fetch --unshallow"):
        choose_revision("", clone=clone)
    with pytest.raises(NotInHistory):
        choose_revision("v1.2.3", clone=clone)
