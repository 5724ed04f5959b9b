"""Claims on letters: the first counts, also after compaction."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from ottla.dead_letters.claims import (
    ClaimedBatch,
    ClaimedLetter,
    Claims,
    ReplayClaim,
    State,
    UnreadableClaim,
    from_json,
    to_json,
)
from tests.property.property_settings import examples_max, exhaustive


def claim(name: str, *letters: int) -> ReplayClaim:
    batch = ClaimedBatch("orders", 0, 10, tuple(ClaimedLetter(0, number, b"key-%d" % number) for number in letters))
    return ReplayClaim(name, "orders.dead-letter", State.BEGUN, 5, 7, 0, (batch,))


def read(records: Sequence[ReplayClaim]) -> Claims:
    claims = Claims()
    for record in records:
        claims.apply(from_json(to_json(record)))
    return claims


def keys(*letters: int) -> set[bytes]:
    return {b"key-%d" % number for number in letters}


def test_first_claim_counts_and_a_later_one_of_the_same_letter_does_not() -> None:
    first, second = claim("a", 1, 2), claim("b", 2, 3)
    claims = read([first, second])
    assert claims.counts("a")
    assert not claims.counts("b")
    assert claims.begun == [first]
    assert claims.void == [second]
    # What does not count keeps nothing from others.
    assert claims.taken == keys(1, 2)


def test_letters_of_a_claim_that_is_done_stay_taken() -> None:
    first = claim("a", 1, 2)
    claims = read([first, first.done(first.batches), claim("b", 2)])
    assert claims.begun == []
    assert claims.taken == keys(1, 2)
    assert not claims.counts("b")


def test_letters_whose_batch_was_refused_are_free_again() -> None:
    first = claim("a", 1, 2)
    claims = read([first, first.done([]), claim("b", 2)])
    assert claims.counts("b")
    assert claims.taken == keys(2)


def test_withdrawn_claim_is_void_no_more() -> None:
    first, second = claim("a", 1), claim("b", 1)
    claims = read([first, second, second.withdrawn()])
    assert claims.void == []
    assert claims.taken == keys(1)


def test_claim_that_was_written_twice_counts() -> None:
    first = claim("a", 1)
    claims = read([first, first])
    assert claims.counts("a")
    assert claims.void == []


def test_claim_that_lost_does_not_count_when_the_winners_first_record_was_compacted_away() -> None:
    first, lost = claim("a", 1), claim("b", 1, 2)
    claims = read([lost, first.done(first.batches)])
    assert not claims.counts("b")
    assert claims.void == [lost]
    assert claims.taken == keys(1)


@exhaustive
@pytest.mark.parametrize("seed", range(examples_max(40)))
def test_no_letter_is_sent_by_two_claims_after_any_kill_and_compaction(seed: int) -> None:
    """Replays that act as `replay` does, one step at a time, each reading a log that may have been compacted."""
    chance = random.Random(seed)
    log: list[ReplayClaim] = []
    senders: dict[bytes, set[str]] = {}
    for run in range(60):
        if chance.random() < 0.3:
            log = compacted(log, chance.randrange(len(log) + 1))
        claims = read(log)
        log += [void.withdrawn() for void in claims.void]
        for begun in claims.begun:
            send(begun, senders)
            refused = chance.random() < 0.2
            log.append(begun.done(() if refused else begun.batches))
            if refused:
                unsend(begun, senders)
        mine = claim(f"run-{run}", *chance.sample(range(8), 3))
        other = claim(f"other-{run}", *chance.sample(range(8), 2))
        # Another replay may come between the reading and the claim.
        log += [other, mine] if chance.random() < 0.5 else [mine]
        if chance.random() < 0.3:
            continue  # killed
        if read(log).counts(mine.claim_id):
            send(mine, senders)
            if chance.random() < 0.6:
                refused = chance.random() < 0.2
                log.append(mine.done(() if refused else mine.batches))
                if refused:
                    unsend(mine, senders)
        elif chance.random() < 0.7:
            log.append(mine.withdrawn())
    assert senders
    assert {key: names for key, names in senders.items() if len(names) > 1} == {}


def send(sent: ReplayClaim, senders: dict[bytes, set[str]]) -> None:
    for key in sent.keys:
        senders.setdefault(key, set()).add(sent.claim_id)


def unsend(refused: ReplayClaim, senders: dict[bytes, set[str]]) -> None:
    for key in refused.keys:
        senders[key].discard(refused.claim_id)


def compacted(log: Sequence[ReplayClaim], end: int) -> list[ReplayClaim]:
    """Below `end` only the last record of each claim is left."""
    last = {record.claim_id: at for at, record in enumerate(log)}
    return [record for at, record in enumerate(log) if at >= end or last[record.claim_id] == at]


def test_claim_of_a_transaction_has_a_form_that_versions_without_them_refuse() -> None:
    plain = claim("a", 1)
    transactional = replace(plain, transactional_id="replay-1")
    assert from_json(to_json(plain)) == plain
    assert from_json(to_json(transactional)) == transactional
    assert (b'"form":1' in to_json(plain), b'"form":2' in to_json(transactional)) == (True, True)


def test_withdrawn_claim_is_not_done_and_one_that_has_ended_otherwise_is() -> None:
    first, second = claim("a", 1), claim("b", 2)
    assert not read([first]).is_done(first)
    claims = read([first, second, first.done(first.batches), second.withdrawn()])
    assert claims.is_done(first)
    assert not claims.is_done(second)


@pytest.mark.parametrize("data", [None, b"", b"[]", b'{"form":2}', b'{"form":1,"claim":"a"}', b"\xff"])
def test_record_of_another_form_is_refused(data: bytes | None) -> None:
    with pytest.raises(UnreadableClaim, match="ottla-dead-letter-replays"):
        from_json(data)
