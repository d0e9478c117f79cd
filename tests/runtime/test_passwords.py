"""What is promised about passwords and tokens."""

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attune.runtime.batching import Overloaded
from attune.runtime.passwords import (
    WAITING_MAX,
    Passwords,
    PasswordTooLong,
    hash_password,
    hash_token,
    is_token,
    mint_token,
    needs_rehash,
    verify_password,
)


def test_the_right_password_is_accepted_and_a_wrong_one_refused() -> None:
    hashed = hash_password("correct horse")

    assert verify_password(hashed, "correct horse")
    assert not verify_password(hashed, "correct horsf")


def test_hashes_use_argon2id_with_the_recommended_cost_and_a_fresh_salt() -> None:
    first, second = hash_password("x"), hash_password("x")

    assert first.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert first != second
    assert not needs_rehash(first)
    assert needs_rehash(first.replace("t=2", "t=1"))


def test_a_damaged_hash_matches_nothing() -> None:
    assert not verify_password("", "x")
    assert not verify_password("$argon2id$nonsense", "x")
    assert needs_rehash("nonsense")


def test_an_endless_password_is_refused_before_it_costs_anything() -> None:
    with pytest.raises(PasswordTooLong):
        hash_password("x" * 2000)
    assert not verify_password(hash_password("x"), "x" * 2000)


async def test_hashing_does_not_hold_up_the_event_loop() -> None:
    passwords = Passwords()
    try:
        hashing = asyncio.gather(*(passwords.hash("x") for _ in range(4)))
        turns = 0
        while not hashing.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns > 10
        assert await passwords.verify((await hashing)[0], "x")
    finally:
        passwords.close()


async def test_an_unknown_person_takes_as_long_as_a_wrong_password() -> None:
    passwords = Passwords()
    try:
        hashed = await passwords.hash("x")
        await passwords.verify(None, "warm")
        started = time.thread_time_ns()
        assert not verify_password(hashed, "wrong")
        wrong = time.thread_time_ns() - started
        started = time.thread_time_ns()
        assert not passwords._verify(None, "wrong")
        unknown = time.thread_time_ns() - started
    finally:
        passwords.close()

    assert unknown > wrong / 5


async def test_too_many_logins_at_once_are_refused() -> None:
    passwords = Passwords()
    try:
        answers = await asyncio.gather(
            *(passwords.verify("", "x") for _ in range(WAITING_MAX + 1)), return_exceptions=True
        )
    finally:
        passwords.close()

    assert [isinstance(answer, Overloaded) for answer in answers] == [False] * WAITING_MAX + [True]


def test_tokens_are_recognised_unique_and_hashed() -> None:
    tokens = {mint_token() for _ in range(100)}

    assert len(tokens) == 100
    assert all(is_token(token) and token.startswith("att_") and len(token) == 53 for token in tokens)
    assert len({hash_token(token) for token in tokens}) == 100
    assert all(len(hash_token(token)) == 32 for token in tokens)


@given(data=st.data())
def test_a_mistyped_token_is_noticed(data: st.DataObject) -> None:
    token = mint_token()
    position = data.draw(st.integers(0, len(token) - 1))
    letter = data.draw(st.characters().filter(lambda one: one != token[position]))

    assert not is_token(token[:position] + letter + token[position + 1 :])


@given(text=st.text(max_size=80))
def test_any_other_text_is_no_token(text: str) -> None:
    assert not is_token(text)
