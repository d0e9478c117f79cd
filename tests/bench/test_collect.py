"""What `make bench` makes of repetitions: medians and ranges, sums of what was broken, and nothing mixed up."""

from __future__ import annotations

import pytest

from bench.choice import PEER_NAMES, UnknownWord, choose
from bench.collect import Row, is_clean, merge_rows, row_of_peer
from bench.peers.catalogue import PEERS, PeerWorkload
from bench.peers.environments import version_of
from bench.peers.measure import Effect, summarize


def made(per_second: float, **more: object) -> Row:
    return {
        "system": "attune postgres",
        "name": "W2",
        "runtime": "native",
        "like": None,
        "executors": 1,
        "backlog": 0,
        "rate": None,
        "per_second": per_second,
        "one_by_one_per_second": per_second / 10,
        "start_ms": {"p50": per_second, "p99": per_second * 2},
        "lost": 0,
        **more,
    }


def test_repetitions_become_a_median_and_a_range() -> None:
    (row,) = merge_rows([made(300.0), made(100.0), made(110.0)])

    assert row["per_second"] == 110
    assert row["per_second_range"] == [100, 300]
    assert row["one_by_one_per_second"] == 11
    assert row["start_ms"] == {"p50": 110, "p99": 220}
    assert row["repetitions"] == 3


def test_what_was_broken_once_is_broken() -> None:
    assert is_clean(merge_rows([made(1.0), made(1.0)]))

    (row,) = merge_rows([made(1.0), made(1.0, lost=2), made(1.0)])

    assert row["lost"] == 2
    assert not is_clean([row])


def test_a_peer_that_keeps_no_order_does_not_make_us_unclean() -> None:
    assert is_clean([made(1.0, system="celery", inversions=7)])


def test_a_rate_missed_in_one_repetition_was_not_reached() -> None:
    rows = merge_rows([made(1.0, rate=500, rate_reached=reached) for reached in (True, False, True)])

    assert [row["rate_reached"] for row in rows] == [False]


@pytest.mark.parametrize("apart", [{"system": "celery"}, {"runtime": "shell"}, {"rate": 50}, {"backlog": 5}])
def test_different_measurements_stay_apart(apart: dict[str, object]) -> None:
    assert len(merge_rows([made(1.0), made(1.0, **apart)])) == 2


def test_a_peer_is_counted_from_its_first_request_to_its_last_effect() -> None:
    workload = PeerWorkload(name="W3", executions=4, quick=4, actions=2)
    effects = [Effect(number=number, at=at) for number, at in ((2, 11.0), (0, 12.0), (1, 14.0), (1, 13.0))]

    run = summarize(workload, effects, began=10.0, executions=4, cpu_us={})

    assert run.per_second == 0.8, "three done in four seconds"
    assert (run.lost, run.duplicated, run.inversions) == (1, 1, 1)
    assert row_of_peer("celery", run)["per_second"] == 0.8


def test_words_choose_who_and_what() -> None:
    everything = choose(only="", without="", quick=False)
    assert everything.who == ["postgres", "rabbitmq", *PEER_NAMES]
    assert "W5" in everything.workloads_on("postgres")
    assert "W5" not in everything.workloads_on("rabbitmq")
    assert choose(only="", without="peers", quick=True).who == ["postgres", "rabbitmq"]
    assert choose(only="peers", without="prefect", quick=True).who == [*PEER_NAMES[:-1]]
    only = choose(only="W1, W2,celery", without="", quick=True)
    assert (only.who, only.workloads) == (["celery"], ["W1", "W2"])


def test_a_word_nobody_knows_is_refused_and_not_ignored() -> None:
    with pytest.raises(UnknownWord, match="W99"):
        choose(only="W99", without="", quick=False)


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_a_peer_says_its_version_its_settings_and_what_it_leaves_out(peer: object) -> None:
    (found,) = (each for each in PEERS if each is peer)
    assert version_of(found.name)
    assert found.settings
    assert found.lacks
    assert all(each.quick <= each.executions for each in found.workloads)
