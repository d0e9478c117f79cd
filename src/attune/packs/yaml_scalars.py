"""What a plain word in a YAML file means, by the core schema of YAML 1.2: `no` is a string, `0o17` is fifteen."""

import math
import re
from collections.abc import Callable

from attune.domain.json_values import Json

# Python takes quadratic time over more, and from some thousand digits on refuses.
DIGITS_MAX = 300


def read_scalar(text: str, *, plain: bool) -> Json:
    """The value of a scalar; `ValueError` says why it has none. Quoted and block scalars are always text."""
    if not plain:
        return text
    for pattern, read in _PLAIN:
        if pattern.fullmatch(text):
            return read(text)
    return text


def _integer(text: str) -> int:
    if len(text) > DIGITS_MAX:
        raise ValueError(f"an integer of more than {DIGITS_MAX} digits; write it in quotes")
    return int(text)


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is beyond the range of numbers; write it in quotes")
    return number


def _not_finite(text: str) -> Json:
    raise ValueError(f"{text} is not a JSON number; write it in quotes")


# The core schema of YAML 1.2, chapter 10.3.2, in its order.
_PLAIN: tuple[tuple[re.Pattern[str], Callable[[str], Json]], ...] = (
    (re.compile(r"null|Null|NULL|~|"), lambda _: None),
    (re.compile(r"true|True|TRUE"), lambda _: True),
    (re.compile(r"false|False|FALSE"), lambda _: False),
    (re.compile(r"[-+]?[0-9]+"), _integer),
    (re.compile(r"0o[0-7]{1,100}"), lambda text: int(text, 0)),
    (re.compile(r"0x[0-9a-fA-F]{1,100}"), lambda text: int(text, 0)),
    (re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), _float),
    (re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"), _not_finite),
)
