"""What can be wrong with settings, told all at once and with the place to mend it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong: which key, where it came from, and why."""

    key: str
    origin: str
    reason: str

    def __str__(self) -> str:
        return f"{self.origin}: {self.key}: {self.reason}" if self.key else f"{self.origin}: {self.reason}"


class SettingsError(Exception):
    """The settings cannot be used; carries every problem found, not only the first."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems
