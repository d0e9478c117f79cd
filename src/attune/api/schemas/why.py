"""What is answered to the question why an execution is where it is."""

import msgspec

from attune.domain.why import Facts


class WhyAnswer(msgspec.Struct, kw_only=True, frozen=True):
    """A sentence for people, a code that does not change, and what both rest on."""

    sentence: str
    code: str
    facts: Facts
