"""References name a pack and an object in it, and a wrong one says how to repair it."""

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attune.domain.refs import BadRef, name_of, nearest, pack_of, parse_pack_ref, parse_ref

PACKS = st.from_regex(r"[a-z][a-z0-9_]{0,20}", fullmatch=True)
NAMES = st.lists(st.from_regex(r"[a-z0-9_]{1,10}", fullmatch=True), min_size=1, max_size=4).map(".".join)


@given(pack=PACKS, name=NAMES)
def test_the_first_dot_ends_the_pack(pack: str, name: str) -> None:
    ref = parse_ref(f"{pack}.{name}")
    assert (pack_of(ref), name_of(ref)) == (pack, name)


@given(text=st.text(max_size=30))
def test_whatever_is_accepted_is_lower_case_plain_text(text: str) -> None:
    with suppress(BadRef):
        assert re.fullmatch(r"[a-z0-9_.]+", parse_ref(text))


@pytest.mark.parametrize(
    "text", ["", "core", "core.", ".get", "core..get", "Core.get", "core.get\n", "1core.x", "a.b c"]
)
def test_a_text_that_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(BadRef):
        parse_ref(text)


@pytest.mark.parametrize("text", ["", "core.http", "Core", "my-pack", "core\n", "a" * 65])
def test_a_text_that_is_no_pack_is_refused(text: str) -> None:
    with pytest.raises(BadRef):
        parse_pack_ref(text)


def test_an_endless_reference_is_refused_and_not_repeated_in_full() -> None:
    with pytest.raises(BadRef) as refused:
        parse_ref("core." + "x" * 10_000)
    assert len(refused.value.message) < 400


def test_a_reference_that_can_be_repaired_comes_with_the_repair() -> None:
    with pytest.raises(BadRef, match=r"did you mean 'my_pack\.do_it'"):
        parse_ref("My-Pack.do it")


def test_the_nearest_name_is_suggested_and_a_far_one_is_not() -> None:
    assert nearest("core.ecoh", ["core.echo", "core.noop"]) == "core.echo"
    assert nearest("Core.Echo", ["core.echo"]) == "core.echo"
    assert nearest("zzz", ["core.echo"]) is None
