"""The store holds each content of a pack once, complete or not at all."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from attune.packs.problems import BadPack
from attune.packs.read import read_pack
from attune.packs.store import content_folder, stage


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    folder = tmp_path / "pack"
    (folder / "actions").mkdir(parents=True)
    (folder / "pack.yaml").write_text("ref: demo\nversion: 1.0.0\n")
    (folder / "actions" / "slow.yaml").write_text("ref: demo.slow\nrunner: shell\nentry_point: slow.sh\n")
    (folder / "actions" / "slow.sh").write_text("true\n")
    return folder


def everything_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_a_pack_lies_below_its_name_and_digest(pack: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    staged = stage(pack, store)
    assert staged == content_folder(store, "demo", read_pack(pack).digest)
    assert everything_below(staged) == everything_below(pack)
    assert read_pack(staged) == read_pack(pack)


def test_staging_the_same_content_again_changes_nothing(pack: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    first = stage(pack, store)
    before = (everything_below(store), first.stat().st_ino)
    assert stage(pack, store) == first
    assert (everything_below(store), first.stat().st_ino) == before


def test_a_changed_pack_lies_beside_the_old_one(pack: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    old = stage(pack, store)
    (pack / "actions" / "slow.sh").write_text("false\n")
    new = stage(pack, store)
    assert old != new
    assert (old / "actions" / "slow.sh").read_text() == "true\n"
    assert (new / "actions" / "slow.sh").read_text() == "false\n"


def test_a_pack_with_problems_leaves_nothing_behind(pack: Path, tmp_path: Path) -> None:
    (pack / "actions" / "slow.sh").unlink()
    store = tmp_path / "store"
    with pytest.raises(BadPack):
        stage(pack, store)
    assert everything_below(store) == set()


def test_staging_at_the_same_time_ends_in_one_folder(pack: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with ThreadPoolExecutor(8) as pool:
        staged = set(pool.map(lambda _: stage(pack, store), range(16)))
    assert len(staged) == 1
    assert [path.name for path in store.iterdir()] == ["demo"]
    assert len(list((store / "demo").iterdir())) == 1


def test_left_behind_tool_files_are_not_copied(pack: Path, tmp_path: Path) -> None:
    (pack / ".git").mkdir()
    (pack / ".git" / "HEAD").write_text("ref")
    assert not (stage(pack, tmp_path / "store") / ".git").exists()


def test_an_unprivileged_child_can_read_what_a_private_umask_made(pack: Path, tmp_path: Path) -> None:
    (pack / "actions" / "slow.sh").chmod(0o700)
    (pack / "pack.yaml").chmod(0o600)
    before = os.umask(0o077)
    try:
        staged = stage(pack, tmp_path / "store")
    finally:
        os.umask(before)
    modes = {str(path.relative_to(staged)): stat.S_IMODE(path.stat().st_mode) for path in staged.rglob("*")}
    assert modes == {"pack.yaml": 0o644, "actions": 0o755, "actions/slow.sh": 0o755, "actions/slow.yaml": 0o644}
    assert stat.S_IMODE(staged.stat().st_mode) == stat.S_IMODE(staged.parent.stat().st_mode) == 0o755


@pytest.mark.parametrize(("ref", "digest"), [("../x", "0" * 64), ("demo", "../" + "0" * 61), ("demo", "short")])
def test_no_name_leads_out_of_the_store(tmp_path: Path, ref: str, digest: str) -> None:
    with pytest.raises(ValueError, match=r".") if ref == "demo" else pytest.raises(Exception, match="pack reference"):
        content_folder(tmp_path, ref, digest)
