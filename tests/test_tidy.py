"""House rules that no other tool checks: sizes, names, places, and words that do not belong here.

A size has a ceiling. What is above it is listed here by name with its length, and the list is a ratchet: it may only
shrink. Splitting by line count alone is worse than a long file, so an exception can be right; it must be seen.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "attune"
CODE = [folder for folder in (ROOT / "src", ROOT / "tests", ROOT / "tools", ROOT / "bench") if folder.is_dir()]

FUNCTION_LINES = 50
FILE_LINES = 400
OPERATION_LINES = 80
MESSAGES_LINES = 200
FOLDER_MODULES = 20
PARAMETERS = 6
POSITIONAL_PARAMETERS = 4

# Name → length. An entry that is no longer needed, or longer than the truth, fails too.
LONG_FUNCTIONS: dict[str, int] = {}
LONG_FILES: dict[str, int] = {}
LONG_OPERATIONS: dict[str, int] = {}
FULL_FOLDERS: dict[str, int] = {}
MANY_PARAMETERS: dict[str, int] = {}

BANNED_NAMES = re.compile(r"(utils?|helpers?|common|base|core|managers?|misc)")
SQL = re.compile(
    r"\bSELECT\b.+\bFROM\b|\bINSERT\s+INTO\b|\bUPDATE\s+\w+\s+SET\b|\bDELETE\s+FROM\b|\b(CREATE|ALTER|DROP)\s+TABLE\b"
    r"|^\s*(?i:select\s.+\sfrom|insert\s+into|update\s+\w+\s+set|delete\s+from)\s",
    re.DOTALL,
)
IMPURE_CALLS = frozenset({"now", "utcnow", "today", "open", "print", "input", "getenv"})
SUPPRESSION = re.compile(r"#\s*(noqa|type:\s*ignore)(?P<rest>.*)$")
REASON = re.compile(r"(: ?[A-Z]+[0-9]+(, ?[A-Z]+[0-9]+)*|\[[a-z, -]+\])\s+([-—#] ?)?\w+")

FOREIGN = {
    "issue and chapter numbers": r"\b(issue|chapter|closes|fixes) #?\d+\b(?!\.\d)",
    # Written so that this file does not contain what it looks for.
    "machine paths": r"/wor[k]/(main|shared)|/op[t]/(pypi|wheels)|/roo[t]/\.pyenv|/tm[p]/(brief|boot)",
    "registry hosts": r"files\.pythonhosted|pypi\.org/simple|registry\.npmjs|\bpkg\.dev\b|artifactregistry",
    "words of a workplace": r"closing[ ]note|helper[ ]agent|sub-?agent[s ]|design[ ]document",
}
THIS_FILE = "tests/test_tidy.py"


def modules(*folders: Path) -> Iterator[Path]:
    for folder in folders:
        yield from sorted(folder.rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def lines_of(path: Path) -> int:
    return len(path.read_text().splitlines())


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    """Every call with its name as written: `datetime.now`."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def docstrings(path: Path) -> set[int]:
    """Identities of the string nodes that are documentation."""
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, owners) and ast.get_docstring(node) is not None:
            first = node.body[0]
            assert isinstance(first, ast.Expr)
            found.add(id(first.value))
    return found


def hold_ratchet(measured: dict[str, int], ceiling: int, exceptions: dict[str, int]) -> None:
    above = {name: size for name, size in measured.items() if size > ceiling}
    grown = {name: size for name, size in above.items() if size > exceptions.get(name, ceiling)}
    assert not grown, f"over the ceiling of {ceiling}, or longer than listed: {grown}"
    stale = {name: above.get(name, "gone") for name, size in exceptions.items() if above.get(name) != size}
    assert not stale, f"shrunk: write the new length, or strike the entry: {stale}"


def test_functions_stay_short() -> None:
    measured = {
        f"{name_of(path)}:{function.name}": (function.end_lineno or function.lineno) - function.lineno + 1
        for path in modules(*CODE)
        for function in functions(path)
    }
    hold_ratchet(measured, FUNCTION_LINES, LONG_FUNCTIONS)


def test_files_stay_short() -> None:
    hold_ratchet({name_of(path): lines_of(path) for path in modules(*CODE)}, FILE_LINES, LONG_FILES)


def test_an_operation_fits_on_a_page() -> None:
    measured = {name_of(path): lines_of(path) for path in modules(PACKAGE / "operations")}
    hold_ratchet(measured, OPERATION_LINES, LONG_OPERATIONS)


def test_the_messages_fit_on_a_few_screens() -> None:
    hold_ratchet({"messages": lines_of(PACKAGE / "domain" / "messages.py")}, MESSAGES_LINES, {})


def test_a_folder_can_be_taken_in_at_a_glance() -> None:
    folders = {path.parent for path in modules(PACKAGE)}
    measured = {
        name_of(folder): len([path for path in folder.glob("*.py") if path.name != "__init__.py"]) for folder in folders
    }
    hold_ratchet(measured, FOLDER_MODULES, FULL_FOLDERS)


def test_functions_take_few_parameters() -> None:
    measured, positional = {}, {}
    for path in modules(PACKAGE, ROOT / "tools"):
        for function in functions(path):
            name = f"{name_of(path)}:{function.name}"
            plain = [
                each for each in [*function.args.posonlyargs, *function.args.args] if each.arg not in {"self", "cls"}
            ]
            measured[name] = len(plain) + len(function.args.kwonlyargs)
            positional[name] = len(plain)
    hold_ratchet(measured, PARAMETERS, MANY_PARAMETERS)
    hold_ratchet(positional, POSITIONAL_PARAMETERS, {})


def test_every_module_says_what_it_is_for() -> None:
    silent = [name_of(path) for path in modules(*CODE) if not ast.get_docstring(tree_of(path))]
    assert not silent


def test_no_module_has_a_name_that_says_nothing() -> None:
    vague = [name_of(path) for path in modules(*CODE) if BANNED_NAMES.fullmatch(path.stem)]
    assert not vague


def test_sql_is_in_storage_only() -> None:
    found = []
    for path in modules(PACKAGE):
        if (PACKAGE / "storage") in path.parents:
            continue
        documentation = docstrings(path)
        found += [
            f"{name_of(path)}:{node.lineno}"
            for node in ast.walk(tree_of(path))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
            if id(node) not in documentation and SQL.search(node.value)
        ]
    assert not found


def test_the_domain_reads_no_clock_and_opens_nothing() -> None:
    found = [
        f"{name_of(path)}:{call.lineno} {name}"
        for path in modules(PACKAGE / "domain")
        for name, call in calls(path)
        if name.rpartition(".")[2] in IMPURE_CALLS
    ]
    assert not found


def test_no_test_sleeps() -> None:
    found = []
    for path in modules(ROOT / "tests"):
        for name, call in calls(path):
            pause = call.args[0] if call.args else None
            long = isinstance(pause, ast.Constant) and isinstance(pause.value, int | float) and pause.value >= 1
            if name == "time.sleep" or (name == "asyncio.sleep" and long):
                found.append(f"{name_of(path)}:{call.lineno}")
    assert not found


def test_every_silenced_complaint_has_a_code_and_a_reason() -> None:
    found = []
    for path in modules(*CODE):
        if name_of(path) == THIS_FILE:
            continue
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            silenced = SUPPRESSION.search(line)
            if silenced and not REASON.match(silenced["rest"]):
                found.append(f"{name_of(path)}:{number}")
    assert not found, f"write it as `# noqa: CODE - why` or `# type: ignore[code]  # why`: {found}"


def repository_files() -> list[Path]:
    """What is or would be tracked; in a copy without git, everything that is not a cache or an environment."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        paths = [ROOT / name for name in done.stdout.split("\0") if name]
    else:
        skipped = {".venv", ".git", "node_modules", "__pycache__", "build", "dist"}
        paths = [path for path in ROOT.rglob("*") if not skipped.intersection(path.relative_to(ROOT).parts)]
    return [path for path in paths if path.is_file() and "cache" not in name_of(path).partition("/")[0]]


@pytest.mark.parametrize("kind", FOREIGN)
def test_the_repository_speaks_of_the_product_only(kind: str) -> None:
    pattern = re.compile(FOREIGN[kind], re.IGNORECASE)
    found = []
    for path in repository_files():
        if name_of(path) == THIS_FILE:
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1):
            if pattern.search(line):
                found.append(f"{name_of(path)}:{number}")
    assert not found


def test_locks_carry_hashes_and_no_addresses() -> None:
    for lock in sorted((ROOT / "requirements").glob("*.txt")):
        text = lock.read_text()
        assert not re.search(r"://|^\s*-(-index|-extra-index|-find|i |f )", text, re.MULTILINE), lock.name
        packages = re.findall(r"^[a-z0-9][^\s=]*==", text, re.MULTILINE)
        entries = re.findall(r"^[a-z0-9][^\n]*\\\n    --hash=sha256:", text, re.MULTILINE)
        assert len(packages) == len(entries) > 0, lock.name


def test_there_is_one_kind_of_lock_and_no_pinned_interpreter() -> None:
    names = {name_of(path) for path in repository_files()}
    assert not names & {"uv.lock", "poetry.lock", "Pipfile.lock", ".python-version"}
