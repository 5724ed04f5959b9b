"""When records are refused, and what happens to the reserve: the rules alone."""

from __future__ import annotations

from typing import Final

import pytest

from ottla.model.limits import GIB, MIB
from ottla.storage.directory.disk_space import (
    LONG_FULL_LOOKS,
    LOOK_EVERY_MS_MAX,
    LOOK_EVERY_MS_MIN,
    LOOK_WHEN_FULL_MS,
    REFUSE_BELOW_BYTES,
    DiskSpace,
    SpaceRules,
    SpaceState,
    Verdict,
)

RULES: Final = SpaceRules(reserve_bytes=400, low_bytes=2_000, refuse_below_bytes=800)
WHOLE: Final = RULES.reserve_bytes


def full_disk(free_bytes: int = 700, held_bytes: int = WHOLE) -> DiskSpace:
    space = DiskSpace(RULES)
    space.on_look(free_bytes, held_bytes)
    assert space.is_full
    return space


def test_records_are_refused_before_the_reserve_is_needed() -> None:
    space = DiskSpace(RULES)
    states = []
    for free_bytes in (5_000, 1_999, 800, 799):
        assert space.on_look(free_bytes, WHOLE) == Verdict()
        states.append(space.state)
    assert states == [SpaceState.AMPLE, SpaceState.LOW, SpaceState.LOW, SpaceState.FULL]


def test_reserve_is_released_when_the_free_room_beside_it_is_nearly_used_up() -> None:
    space = full_disk()
    assert not space.on_look(100, WHOLE).gives_back
    assert space.on_look(99, WHOLE).gives_back


def test_write_that_fails_gives_the_reserve_back_at_once() -> None:
    space = DiskSpace(RULES)
    space.on_look(5_000, WHOLE)
    assert space.on_no_room(0, WHOLE).gives_back
    assert space.is_full


def test_committed_offsets_stop_before_the_last_quarter_of_the_reserve() -> None:
    space = full_disk()
    are_refused = []
    for free_bytes, held_bytes in ((50, WHOLE), (400, 0), (99, 0), (5_000, 0)):
        space.on_look(free_bytes, held_bytes)
        are_refused.append(space.is_spent)
    assert are_refused == [False, False, True, False]


def test_records_are_taken_again_when_there_is_room_beside_a_whole_reserve() -> None:
    space = full_disk(held_bytes=0)
    space.on_look(RULES.resume_bytes + WHOLE - 1, 0)
    assert space.is_full
    assert space.on_look(RULES.resume_bytes + WHOLE, 0).makes
    assert space.state is SpaceState.LOW


def test_reserve_that_could_not_be_made_is_tried_again_when_there_is_room_for_it() -> None:
    space = DiskSpace(RULES)
    assert space.on_look(5_000, 0).makes
    assert space.on_look(5_000, 0).makes
    assert not space.on_look(5_000, WHOLE).makes
    assert not space.on_look(799, 0).makes


def test_low_disk_is_ample_again_only_well_above_the_limit() -> None:
    space = DiskSpace(RULES)
    states = []
    for free_bytes in (1_999, 2_001, 2_499, 2_500):
        space.on_look(free_bytes, WHOLE)
        states.append(space.state)
    assert states == [SpaceState.LOW, SpaceState.LOW, SpaceState.LOW, SpaceState.AMPLE]


def looks_until_open(space: DiskSpace) -> int:
    for count in range(1, 1_000):
        space.on_look(5_000, WHOLE)
        if not space.is_full:
            return count
    raise AssertionError("records are refused for ever")


def test_writes_that_fail_although_bytes_are_free_are_tried_again_more_and_more_seldom() -> None:
    space = DiskSpace(RULES)
    waits = []
    for _ in range(8):
        space.on_no_room(5_000, WHOLE)
        waits.append(looks_until_open(space))
    assert waits == [2, 4, 8, 16, 32, 64, 64, 64]
    for _ in range(121):
        space.on_look(5_000, WHOLE)
    space.on_no_room(5_000, WHOLE)
    assert looks_until_open(space) == 2


def test_disk_that_is_seen_full_is_open_with_the_first_look_that_sees_room_however_often_it_fills() -> None:
    space = DiskSpace(RULES)
    for _ in range(4):
        space.on_no_room(0, 0)
        space.on_no_room(0, 0)
        assert space.is_full
        space.on_look(5_000, 0)
        assert not space.is_full


def test_disk_is_long_full_after_some_looks_and_until_the_first_that_sees_room() -> None:
    space = full_disk()
    seen = [space.is_long_full]
    for free_bytes in (*[700] * (LONG_FULL_LOOKS - 1), 5_000, 700):
        space.on_look(free_bytes, WHOLE)
        seen.append(space.is_long_full)
    assert seen == [*[False] * (LONG_FULL_LOOKS - 1), True, False, False]


def test_interval_of_checks_follows_the_free_room() -> None:
    space = DiskSpace(SpaceRules(refuse_below_bytes=REFUSE_BELOW_BYTES))
    assert space.next_look_ms(100 * GIB) == LOOK_EVERY_MS_MAX
    assert LOOK_EVERY_MS_MIN < space.next_look_ms(500 * MIB) < LOOK_EVERY_MS_MAX
    assert space.next_look_ms(100 * MIB) == LOOK_EVERY_MS_MIN
    # What one event loop may append between two looks, 1 GiB in a second, is less than what is left at the limit.
    assert LOOK_EVERY_MS_MIN * GIB / 1000 < REFUSE_BELOW_BYTES
    space.on_no_room(0, 0)
    assert space.next_look_ms(0) == LOOK_WHEN_FULL_MS


@pytest.mark.parametrize(
    ("total_bytes", "rules"),
    [
        (1_000 * GIB, SpaceRules(32 * MIB, 5 * GIB, 64 * MIB)),
        (40 * MIB, SpaceRules(40 * MIB // 16, 4 * MIB, 40 * MIB // 16)),
        (0, SpaceRules()),
    ],
    ids=["large", "tiny", "unknown"],
)
def test_small_file_system_has_a_small_reserve(total_bytes: int, rules: SpaceRules) -> None:
    assert SpaceRules.of_volume(total_bytes, 32 * MIB, 5 * GIB) == rules
    assert rules.low_bytes >= rules.resume_bytes


def test_without_rules_only_writes_that_fail_count() -> None:
    space = DiskSpace(SpaceRules())
    assert space.on_look(0, 0) == Verdict()
    assert space.state is SpaceState.AMPLE
    space.on_no_room(0, 0)
    assert space.is_full
    assert not space.is_spent
