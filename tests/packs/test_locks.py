"""What a pack needs is named with hashes, or its author is told how."""

from __future__ import annotations

from pathlib import Path

import pytest

from attune.packs.locks import find_lock_problems, node_lock, python_lock, read_requirements

HASH = f"--hash=sha256:{'0' * 64}"
LOCKED = f"requests==2.32.0 \\\n    {HASH} \\\n    {HASH}\n    # via -r requirements.txt\n"


def problems(folder: Path, **files: str) -> list[str]:
    names = {
        "lock": "requirements.lock",
        "wishes": "requirements.txt",
        "package": "package.json",
        "package_lock": "package-lock.json",
    }
    for key, content in files.items():
        (folder / names[key]).write_text(content)
    paths = [path.name for path in folder.iterdir()]
    return [str(problem) for problem in find_lock_problems(folder, paths)]


def test_a_lock_with_hashes_is_sound(tmp_path: Path) -> None:
    marked = f"tomli==2.0.1 ; python_version < '3.11' {HASH}\n"
    assert problems(tmp_path, lock=f"# made by uv\n{LOCKED}{marked}", wishes="requests>=2\n") == []
    assert python_lock(tmp_path) == (tmp_path / "requirements.lock").read_bytes()


def test_requirements_with_hashes_need_no_second_file(tmp_path: Path) -> None:
    assert problems(tmp_path, wishes=LOCKED) == []
    assert python_lock(tmp_path) == LOCKED.encode()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("requests==2.32.0", "'requests' has no hash"),
        (f"requests>=2 {HASH}", "'requests>=2' names no exact version"),
        (f"requests @ https://example.org/requests.whl {HASH}", "names no exact version"),
        ("--index-url https://example.org/simple", "--index-url has no place in a lock"),
        ("-r other.txt", "-r has no place in a lock"),
        ("-e .", "-e has no place in a lock"),
    ],
)
def test_whatever_is_not_locked_is_named_with_its_line(tmp_path: Path, line: str, said: str) -> None:
    (problem,) = problems(tmp_path, lock=f"{LOCKED}\n{line}\n")
    assert problem.startswith("requirements.lock:6:1: ")
    assert said in problem


def test_requirements_without_hashes_tell_how_to_make_a_lock(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, wishes="requests\n")
    assert "uv pip compile --universal --generate-hashes requirements.txt -o requirements.lock" in problem


def test_a_lock_that_was_not_made_again_is_noticed(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, lock=LOCKED, wishes="Requests\nPyYAML>=6\n")
    assert problem.startswith("requirements.txt:2:1: 'pyyaml' is not in requirements.lock")


def test_an_empty_lock_needs_no_environment(tmp_path: Path) -> None:
    assert problems(tmp_path, wishes="# nothing\n") == []
    assert python_lock(tmp_path) is None
    assert python_lock(tmp_path / "elsewhere") is None


def test_a_requirement_may_stretch_over_lines() -> None:
    (requirement,) = read_requirements(LOCKED.encode())
    assert (requirement.line, requirement.name) == (1, "requests")


SOUND = '{"lockfileVersion": 3, "packages": {"": {}, "node_modules/a": {"version": "1.0.0", "integrity": "sha512-x"}}}'


def test_a_lock_of_npm_is_sound(tmp_path: Path) -> None:
    assert problems(tmp_path, package="{}", package_lock=SOUND) == []
    assert node_lock(tmp_path) == {"package-lock.json": SOUND.encode(), "package.json": b"{}"}


@pytest.mark.parametrize(
    ("package", "said"),
    [
        ('{"version": "1.0.0"}', "node_modules/a has no hash"),
        ('{"resolved": "git+ssh://example.org/a.git#1", "integrity": "x"}', "comes from git+ssh://"),
        ('{"resolved": "../a", "link": true}', "comes from ../a"),
        ('{"resolved": "file:/etc/a.tgz", "integrity": "x"}', "is no .tgz file of the pack"),
        ('{"resolved": "file:vendor/missing.tgz", "integrity": "x"}', "is no .tgz file of the pack"),
    ],
)
def test_a_package_that_could_be_another_tomorrow_is_refused(tmp_path: Path, package: str, said: str) -> None:
    lock = f'{{"packages": {{"": {{}}, "node_modules/a": {package}}}}}'
    (problem,) = problems(tmp_path, package="{}", package_lock=lock)
    assert said in problem


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"package": '{"dependencies": {"a": "^1"}}'}, "package.json: has no package-lock.json beside it"),
        ({"package_lock": SOUND}, "package-lock.json: has no package.json beside it"),
        ({"package": "{}", "package_lock": '{"lockfileVersion": 1}'}, "is no lock of npm 7 or newer"),
    ],
)
def test_a_half_of_npms_files_is_not_enough(tmp_path: Path, files: dict[str, str], said: str) -> None:
    (problem,) = problems(tmp_path, **files)
    assert said in problem
