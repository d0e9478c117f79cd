"""What is wrong with a pack, told so that an author can go straight to the place."""

from collections.abc import Iterable
from dataclasses import dataclass

from attune.domain.errors import FieldError, Invalid


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Problem:
    """One thing to mend. Line and column count from 1; line 0 means the file as a whole."""

    file: str
    line: int = 0
    column: int = 0
    message: str
    pointer: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        where = f"{self.pointer.lstrip('/').replace('/', '.')}: " if self.pointer else ""
        return f"{place}: {where}{self.message}"


class BadPack(Invalid):
    """A pack that cannot be installed, with every reason."""

    code = "bad_pack"

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(set(problems)))
        lines = "\n".join(str(problem) for problem in self.problems)
        fields = [FieldError(pointer=problem.pointer, message=str(problem)) for problem in self.problems]
        super().__init__(f"the pack has {len(self.problems)} problem(s)\n{lines}", fields=fields)
