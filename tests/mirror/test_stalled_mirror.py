"""A mirror through stalls and a kill loses nothing; `./dev chaos mirror` is the long form."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from functools import partial

import pytest

from ottla.client.wire.cluster import Cluster
from ottla.mirror.fence import Fence
from ottla.mirror.progress_topic import make_progress_topic
from ottla.testing import ControlledBroker
from tests.eventually import eventually
from tests.mirror.stalls import Outcome, has_gap, judge, run

STALLS = 6
GROUP_SETTINGS = {"group.min.session.timeout.ms": "100"}


@pytest.mark.slow
def test_mirror_through_stalls_and_a_kill_copies_every_record_in_order(
    record_property: Callable[[str, object], None],
) -> None:
    seed = int(os.environ.get("OTTLA_MIRROR_SEED", str(random.SystemRandom().randrange(1 << 30))))
    record_property("simulation", f"stalls of a mirror, OTTLA_MIRROR_SEED={seed}")
    outcome = run(STALLS, seed)
    print(outcome)  # noqa: T201  the counts are the result
    assert not outcome.problems, str(outcome)
    assert outcome.records_count > 1_000


@pytest.mark.slow
def test_judge_notices_a_mirror_that_drops_a_batch() -> None:
    # On a loaded machine a life may end before the mirror has dropped a batch and copied one after it.
    outcome = run(4, 1, module="tests.mirror.mutated_mirror", until=has_gap)
    assert any("are missing" in problem for problem in outcome.problems), str(outcome)


def test_judge_compares_record_by_record() -> None:
    rows = [(number, None, b"%d" % number, ()) for number in range(4)]
    for target, reported, problem in (
        (rows, 0, None),
        ([*rows[:3], *rows[1:]], 2, None),
        ([*rows[:3], *rows[1:]], 1, "2 records are there twice, the mirror reported 1"),
        (rows[:2], 0, "partition 0: 2 records are missing: [b'2', b'3']"),
        ([rows[1], rows[0], *rows[2:]], 0, "partition 0: the last copies are not in order"),
        ([*rows, (9, None, b"9", ())], 0, "partition 0: 1 records are not on the source"),
    ):
        outcome = Outcome(1)
        judge({0: rows}, {0: target}, reported, outcome)
        assert outcome.problems == ([] if problem is None else [problem])


def test_gap_is_a_missing_record_before_one_that_is_there() -> None:
    rows = [(number, None, b"%d" % number, ()) for number in range(4)]
    assert not has_gap({0: rows}, {})
    assert not has_gap({0: rows, 1: rows}, {0: rows, 1: rows[:2]})
    assert has_gap({0: rows, 1: rows}, {0: rows, 1: [rows[0], rows[2]]})
    assert has_gap({0: rows}, {0: rows[1:]})


def test_lease_that_is_renewed_after_a_lapse_is_another_term() -> None:
    with ControlledBroker(GROUP_SETTINGS) as broker, Cluster(broker.bootstrap) as cluster:
        make_progress_topic(cluster, 1)
        with Fence(cluster, broker.bootstrap, "g", 3_000) as fence:
            eventually(partial(fence.wait_held, 0.1))
            first = fence.term
            with broker.paused():
                assert eventually(lambda: not fence.is_held)
            eventually(partial(fence.wait_held, 0.1))
            assert not fence.is_held_since(first)
            assert eventually(lambda: fence.is_held_since(fence.term)), "a new term is held like the first one"
