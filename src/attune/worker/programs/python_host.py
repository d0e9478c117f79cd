"""Runs one Python action in an interpreter of its own: the file as a script, or the function `run` it defines.

Nothing of Attune can be imported here, and every import costs each execution its time: the few that are not always
needed stand where they are needed. The worker reads `Failure` from the file that it names; everything else is the
contract every script has.
"""

import os
import sys
from types import ModuleType, TracebackType

ONLY_AST = 0x400  # ast.PyCF_ONLY_AST, without paying for the import of `ast`
MESSAGE_CHARACTERS_MAX = 2000
FUNCTION = "run"
# For a file whose name is no name of a module, or the name of one that others want to import.
FALLBACK_NAME = "__attune_action__"


class Failure(Exception):
    """The action cannot be called, or what it returned cannot be kept; code and message are the execution's error."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def main(entry: str, pack: str, failure_file: str, parameter_format: str) -> int:
    """Run the action; returns the exit code. Called once in the life of a process."""
    sys.argv = [entry]
    # Last, so that an action called `email.py` does not stand in the way of the module its neighbours import.
    sys.path += [path for path in (os.path.join(pack, "lib"), os.path.dirname(entry)) if os.path.isdir(path)]
    # Whoever follows the log sees each line when it is printed. The other stream is never more than a line behind.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # at the start of a process it is a file
    try:
        _run(entry, parameter_format)
    except SystemExit as asked:
        return _exit_code(asked)
    except Failure as failure:
        print(failure, file=sys.stderr)
        _tell(failure_file, failure.code, str(failure))
        return 1
    except BaseException as error:
        # The hook may be the action's own.
        error.__traceback__ = _frames_of(entry, error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        _tell(failure_file, "exception", _describe(error))
        return 1
    return 0


def _run(entry: str, parameter_format: str) -> None:
    with open(entry, "rb") as file:
        source = file.read()
    tree = compile(source, entry, "exec", ONLY_AST, dont_inherit=True)
    code = compile(tree, entry, "exec", dont_inherit=True)
    if not _defines_function(tree):
        exec(code, _module("__main__", entry))
        return
    names = _module(_module_name(entry), entry)
    exec(code, names)
    _write_result(_call(names[FUNCTION], _read_parameters(parameter_format)))


def _defines_function(tree: object) -> bool:
    kinds = ("FunctionDef", "AsyncFunctionDef")
    return any(type(node).__name__ in kinds and node.name == FUNCTION for node in getattr(tree, "body", ()))


def _module(name: str, entry: str) -> dict[str, object]:
    module = ModuleType(name)
    module.__file__ = entry
    sys.modules[name] = module
    return module.__dict__


def _module_name(entry: str) -> str:
    stem = os.path.basename(entry).partition(".")[0]
    taken = stem in sys.stdlib_module_names or stem in sys.modules
    return FALLBACK_NAME if taken or not stem.isidentifier() else stem


def _read_parameters(parameter_format: str) -> dict[str, object]:
    import json

    if parameter_format != "json":
        raise Failure("bad_parameters", f"{FUNCTION}() needs parameter_format: json, not {parameter_format}")
    path = os.environ.get("ATTUNE_PARAMETER_FILE")
    if path is None:
        content = sys.stdin.buffer.read()
    else:
        with open(path, "rb") as file:
            content = file.read()
    return dict(json.loads(content))


def _call(function: object, parameters: dict[str, object]) -> object:
    if not callable(function):
        raise Failure("missing_entry_point", f"{FUNCTION} is no function any more when the file has run")
    try:
        returned = function(**parameters)
    except TypeError as error:
        # One frame, ours: the call itself was refused, and nothing of the function has run.
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:
            raise Failure("bad_parameters", str(error)) from None
        raise
    if not hasattr(returned, "__await__"):
        return returned
    import asyncio

    async def wait() -> object:
        return await returned

    return asyncio.run(wait())


def _write_result(value: object) -> None:
    import json

    path = os.environ["ATTUNE_OUTPUT"]
    if value is None and os.path.exists(path):
        return  # It wrote its result there itself.
    try:
        content = json.dumps(value, allow_nan=False, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise Failure("bad_output", f"{FUNCTION}() returned what is no JSON: {error}") from None
    with open(path, "w", encoding="utf-8") as file:
        file.write(content)


def _plain(value: object) -> object:
    """What JSON does not know and everybody would write the same way."""
    fields = getattr(type(value), "__dataclass_fields__", None)
    if fields is not None:
        return {name: getattr(value, name) for name in fields}
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, (set, frozenset)):
        return list(value)
    if isinstance(value, os.PathLike) or type(value).__name__ in ("UUID", "Decimal"):
        return str(value)
    raise TypeError(f"a {type(value).__name__} has no form in JSON")


def _exit_code(asked: SystemExit) -> int:
    if asked.code is None:
        return 0
    if isinstance(asked.code, int):
        return asked.code & 0xFF
    print(asked.code, file=sys.stderr)
    return 1


def _frames_of(entry: str, whole: "TracebackType | None") -> "TracebackType | None":
    """From the action's first frame on: what called it is of no use to its author."""
    frames = whole
    while frames is not None and frames.tb_frame.f_code.co_filename != entry:
        frames = frames.tb_next
    return frames


def _describe(error: BaseException) -> str:
    kind = type(error)
    own = kind.__module__ in ("builtins", "__main__")
    name = kind.__qualname__ if own else f"{kind.__module__}.{kind.__qualname__}"
    try:
        text = str(error)
    except Exception:
        text = ""
    return f"{name}: {text}" if text else name


def _tell(failure_file: str, code: str, message: str) -> None:
    import json

    try:
        with open(failure_file, "w", encoding="utf-8") as file:
            json.dump({"code": code, "message": message[:MESSAGE_CHARACTERS_MAX]}, file)
    except OSError:
        pass  # The exit code says enough, and the reason stands in the log.


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
