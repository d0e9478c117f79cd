"""A folder is read as a pack, or everything that is wrong with it is said at once, with the place."""

import os
from pathlib import Path

import pytest

from attune.domain.definitions import Concurrency, PolicyScope, Runner, ScopeKind
from attune.packs import files
from attune.packs.problems import BadPack
from attune.packs.read import PackReading, read_pack

REPOSITORY = Path(__file__).parents[2]
PACK = "ref: demo\nversion: 1.0.0\n"
SLOW = "ref: demo.slow\nrunner: shell\nentry_point: slow.sh\n"
LIMIT = "ref: demo.limit\nscope: {action: demo.slow}\nconcurrency: {limit: 2}\n"
DEMO = {"pack.yaml": PACK, "actions/slow.yaml": SLOW, "actions/slow.sh": "true\n", "policies/limit.yaml": LIMIT}


def write(folder: Path, texts: dict[str, str]) -> Path:
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def read(folder: Path, changes: dict[str, str] | None = None) -> PackReading:
    return read_pack(write(folder, DEMO | (changes or {})))


def problems(folder: Path, changes: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(BadPack) as refused:
        read(folder, changes)
    return [str(problem) for problem in refused.value.problems]


def test_a_folder_is_read_whole(tmp_path: Path) -> None:
    pack = read(tmp_path).definition
    assert (pack.ref, pack.version) == ("demo", "1.0.0")
    assert [(action.ref, action.runner, action.entry_point) for action in pack.actions] == [
        ("demo.slow", Runner.SHELL, "slow.sh")
    ]
    assert [(policy.scope, policy.concurrency) for policy in pack.policies] == [
        (PolicyScope(kind=ScopeKind.ACTION, ref="demo.slow"), Concurrency(limit=2))
    ]


def test_the_core_pack_is_read_by_the_same_code() -> None:
    reading = read_pack(REPOSITORY / "packs" / "core")
    assert {action.ref for action in reading.definition.actions} >= {
        "core.echo",
        "core.fail",
        "core.noop",
        "core.set",
        "core.shell",
        "core.sleep",
    }
    assert reading.warnings == ()


@pytest.mark.parametrize("folder", sorted((REPOSITORY / "packs" / "examples").iterdir()), ids=lambda path: path.name)
def test_every_example_pack_can_be_installed(folder: Path) -> None:
    assert read_pack(folder).warnings == ()


def test_a_wrong_key_is_shown_with_line_column_and_the_right_one(tmp_path: Path) -> None:
    assert problems(tmp_path, {"actions/slow.yaml": SLOW + "retry:\n  max_atempts: 3\n"}) == [
        "actions/slow.yaml:5:3: retry.max_atempts: unknown key 'max_atempts'; did you mean 'max_attempts'?"
    ]


def test_a_wrong_type_is_shown_at_the_value(tmp_path: Path) -> None:
    assert problems(tmp_path, {"actions/slow.yaml": SLOW + "timeout_seconds: soon\n"}) == [
        "actions/slow.yaml:4:18: timeout_seconds: must be an integer, not a string"
    ]


def test_a_version_that_yaml_reads_as_a_number_is_explained(tmp_path: Path) -> None:
    assert problems(tmp_path, {"pack.yaml": "ref: demo\nversion: 1.0\n"}) == [
        "pack.yaml:2:10: version: must be a string, not a number"
    ]


def test_the_problems_of_all_files_come_together(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        {
            "pack.yaml": "ref: demo\n",
            "actions/slow.yaml": SLOW + "entry_point: again.sh\n",
            "actions/other.yaml": "ref: demo.other\nrunner: python\nentry_point: missing.py\n",
            "actions/schema.yaml": "ref: demo.schema\nrunner: shell\ncommand: a\nparameters: {type: objekt}\n",
            "policies/limit.yaml": "ref: demo.limit\nscope: global\n",
        },
    )
    assert [problem.split(":")[0] for problem in found] == [
        "actions/other.yaml",
        "actions/schema.yaml",
        "actions/slow.yaml",
        "pack.yaml",
        "policies/limit.yaml",
    ]


def test_a_missing_pack_file_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(BadPack, match=r"pack\.yaml: is missing"):
        read_pack(tmp_path)


def test_a_folder_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(BadPack, match="is not a folder"):
        read_pack(tmp_path / "nowhere")


def test_a_missing_script_is_a_problem_with_the_nearest_file(tmp_path: Path) -> None:
    assert problems(tmp_path, {"actions/slow.yaml": SLOW.replace("slow.sh", "slwo.sh")}) == [
        "actions/slow.yaml:3:14: entry_point: there is no file 'actions/slwo.sh'; did you mean 'actions/slow.sh'?"
    ]


@pytest.mark.parametrize("escape", ["../../outside.sh", "/bin/sh", "a/../../../x"])
def test_a_script_outside_the_pack_is_a_problem(tmp_path: Path, escape: str) -> None:
    (tmp_path / "outside.sh").write_text("true")
    found = problems(tmp_path / "pack", {"actions/slow.yaml": SLOW.replace("slow.sh", escape)})
    assert len(found) == 1
    assert "leads out of the pack" in found[0]


def test_a_script_elsewhere_in_the_pack_is_accepted(tmp_path: Path) -> None:
    changes = {"actions/slow.yaml": SLOW.replace("slow.sh", "../bin/slow.sh"), "bin/slow.sh": "true\n"}
    assert read(tmp_path, changes).definition.actions[0].entry_point == "../bin/slow.sh"


def test_links_are_refused_even_within_the_pack(tmp_path: Path) -> None:
    write(tmp_path, DEMO)
    (tmp_path / "actions" / "link.sh").symlink_to("slow.sh")
    (tmp_path / "linked").symlink_to("/etc")
    assert [problem.split(":")[0] for problem in problems(tmp_path)] == ["actions/link.sh", "linked"]


def test_what_is_no_regular_file_is_refused_without_reading_it(tmp_path: Path) -> None:
    write(tmp_path, DEMO)
    os.mkfifo(tmp_path / "actions" / "pipe.yaml")
    assert "no regular file" in problems(tmp_path)[0]


def test_a_name_from_another_pack_is_a_problem(tmp_path: Path) -> None:
    changed = {"actions/x.yaml": "ref: other.x\nrunner: shell\ncommand: a\n"}
    assert problems(tmp_path, changed) == ["actions/x.yaml:1:6: ref: 'other.x' is not in pack 'demo'; write demo.x"]


def test_two_actions_of_one_name_are_a_problem(tmp_path: Path) -> None:
    assert problems(tmp_path, {"actions/twin.yaml": SLOW}) == [
        "actions/twin.yaml:1:6: ref: 'demo.slow' is already declared in actions/slow.yaml"
    ]


def test_an_action_and_a_policy_may_share_a_name(tmp_path: Path) -> None:
    reading = read(tmp_path, {"policies/limit.yaml": LIMIT.replace("demo.limit", "demo.slow")})
    assert reading.definition.policies[0].ref == reading.definition.actions[0].ref


def test_a_policy_for_an_unknown_action_is_a_problem(tmp_path: Path) -> None:
    assert problems(tmp_path, {"policies/limit.yaml": LIMIT.replace("demo.slow", "demo.slwo")}) == [
        "policies/limit.yaml:2:17: scope.action: the pack has no action 'demo.slwo'; did you mean 'demo.slow'?"
    ]


@pytest.mark.parametrize("broken", [SLOW + "timeout_seconds: x\n", "ref: [", SLOW + SLOW])
def test_a_broken_action_does_not_make_its_policy_wrong_too(tmp_path: Path, broken: str) -> None:
    found = problems(tmp_path, {"actions/slow.yaml": broken})
    assert {problem.split(":")[0] for problem in found} == {"actions/slow.yaml"}


def test_a_zero_character_in_a_file_is_a_problem_with_its_place(tmp_path: Path) -> None:
    found = problems(tmp_path, {"actions/slow.yaml": SLOW + 'description: "a\\0b"\n'})
    assert len(found) == 1
    assert found[0].startswith("actions/slow.yaml:4:14: description: contains the character U+0000")


def test_the_configuration_schema_may_have_its_own_file(tmp_path: Path) -> None:
    reading = read(tmp_path, {"config.schema.yaml": "type: object\n"})
    assert reading.definition.config_schema == {"type": "object"}


def test_a_wrong_configuration_schema_is_a_problem_in_its_file(tmp_path: Path) -> None:
    found = problems(tmp_path, {"config.schema.yaml": "type: object\nproperties: {a: {type: strin}}\n"})
    assert [problem.partition(" ")[0] for problem in found] == ["config.schema.yaml:2:24:"]


def test_folders_for_later_and_mistyped_ones_are_warned_about(tmp_path: Path) -> None:
    changes = {"rules/r.yaml": "x: 1\n", "polices/p.yaml": "x: 1\n", "actions/old.yml": "x: 1\n", "lib/a.py": ""}
    assert read(tmp_path, changes).warnings == (
        "polices/ is not read; did you mean 'policies'?",
        "rules/ is not read by this version; nothing in it was installed",
        "actions/old.yml is not read: definitions end in .yaml",
    )


def test_the_digest_depends_on_content_alone(tmp_path: Path) -> None:
    first, second = read(tmp_path / "a").digest, read(tmp_path / "b").digest
    write(tmp_path / "b", {"__pycache__/x.pyc": "left behind", ".git/HEAD": "ref"})
    assert first == second == read_pack(tmp_path / "b").digest


@pytest.mark.parametrize("change", ["content", "name", "mode", "new"])
def test_any_change_changes_the_digest(tmp_path: Path, change: str) -> None:
    before = read(tmp_path, {"lib/a.txt": "a"}).digest
    path = tmp_path / "lib" / "a.txt"
    if change == "content":
        path.write_text("b")
    elif change == "name":
        path.rename(path.with_name("b.txt"))
    elif change == "mode":
        path.chmod(0o755)
    else:
        path.with_name("c.txt").touch()
    assert read_pack(tmp_path).digest != before


def test_the_number_of_files_is_bounded(tmp_path: Path) -> None:
    for number in range(files.FILES_MAX + 1):
        (tmp_path / str(number)).touch()
    assert "more than 5000 files" in problems(tmp_path)[0]


def test_the_size_of_a_file_is_bounded(tmp_path: Path) -> None:
    write(tmp_path, DEMO)
    with (tmp_path / "large").open("wb") as stream:
        stream.truncate(files.FILE_BYTES_MAX + 1)
    assert problems(tmp_path) == [f"large: is larger than {files.FILE_BYTES_MAX} bytes"]


def test_the_size_of_all_files_is_bounded(tmp_path: Path) -> None:
    write(tmp_path, DEMO)
    for number in range(5):
        with (tmp_path / f"large{number}").open("wb") as stream:
            stream.truncate(files.FILE_BYTES_MAX)
    assert "together" in problems(tmp_path)[0]


def test_a_file_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    write(tmp_path, DEMO)
    (tmp_path / "two\nlines").touch()
    Path(os.fsdecode(bytes(tmp_path) + b"/\xff")).touch()
    assert len(problems(tmp_path)) == 2
