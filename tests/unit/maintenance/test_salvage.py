from __future__ import annotations

from collections.abc import Sequence

import pytest

from ottla.maintenance.repair import execute_repair
from ottla.maintenance.repair_plan import Recorded, empty_batch, plan_repair
from ottla.maintenance.salvage import Bounds, heaviest_rising, whole_batches
from ottla.records.builder import build_batch
from ottla.records.header import BASE_OFFSET, LEADER_EPOCH_AT, LENGTH_AT, MAGIC_AT, read_header
from ottla.records.record import Record, decode_batch
from ottla.runtime.disk import write_fully
from ottla.testing.memory_disk import MemoryDisk

DIRECTORY = "/data/orders-0"
PATH = f"{DIRECTORY}/{0:020d}.log"
RECORDS = 3
BATCHES = 12
END = RECORDS * BATCHES


def batch(number: int, value: bytes = b"value", epoch: int = 0) -> bytes:
    built = build_batch([Record(index, 1_000, None, value) for index in range(RECORDS)])
    BASE_OFFSET.pack_into(built, 0, number * RECORDS)
    built[LEADER_EPOCH_AT : LEADER_EPOCH_AT + 4] = epoch.to_bytes(4, "big")
    return bytes(built)


def disk_with(content: bytes, *, path: str = PATH) -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directory("/data")
    disk.make_directory(DIRECTORY)
    file = disk.open(path, create=True)
    write_fully(file, 0, content)
    file.close()
    return disk


def kept_of(content: bytes, indexed: frozenset[int] = frozenset(), end: int | None = END) -> list[int]:
    """The numbers of the batches that are found whole."""
    file = disk_with(content).open(PATH)
    return [each.base_offset // RECORDS for each in whole_batches(file, Bounds(0, end), indexed)]


def damaged(batches: Sequence[bytes], *changes: tuple[int, int]) -> bytes:
    """The batches one after the other, with a byte of some changed: (number, position in the batch)."""
    changed = [bytearray(each) for each in batches]
    for number, position in changes:
        changed[number][position] ^= 0xFF
    return b"".join(changed)


BATCH_LIST = [batch(number) for number in range(BATCHES)]
RECORD_BYTE = 70


def without(*numbers: int) -> list[int]:
    return [number for number in range(BATCHES) if number not in numbers]


@pytest.mark.parametrize(
    ("changes", "lost"),
    [
        ([], []),
        ([(4, RECORD_BYTE)], [4]),
        ([(0, RECORD_BYTE), (BATCHES - 1, RECORD_BYTE)], [0, BATCHES - 1]),
        ([(4, RECORD_BYTE), (5, RECORD_BYTE), (9, RECORD_BYTE)], [4, 5, 9]),
        ([(4, LENGTH_AT + 1)], [4]),
        ([(4, LENGTH_AT + 3)], [4]),
        ([(4, MAGIC_AT)], [4]),
        ([(4, MAGIC_AT), (9, RECORD_BYTE)], [4, 9]),
        ([(4, LENGTH_AT), (7, RECORD_BYTE), (8, RECORD_BYTE)], [4, 7, 8]),
        ([(4, 0)], [4]),
        ([(4, 7)], [4]),
        ([(BATCHES - 1, 6)], [BATCHES - 1]),
    ],
)
def test_only_the_damaged_batches_are_lost(changes: list[tuple[int, int]], lost: list[int]) -> None:
    assert kept_of(damaged(BATCH_LIST, *changes)) == without(*lost)


def test_run_of_bytes_copied_over_others_loses_against_what_follows() -> None:
    copied = [*BATCH_LIST[:2], *BATCH_LIST[8:11], *BATCH_LIST[5:]]
    assert kept_of(b"".join(copied)) == [0, 1, 5, 6, 7, 8, 9, 10, 11]


def test_batch_inside_a_value_is_not_taken_for_one_of_the_log() -> None:
    # Its offsets would fit into the gap that the damage leaves.
    forged = batch(4, b"forged")
    batches = [*BATCH_LIST[:4], batch(4, b"x" * 20 + forged + b"y" * 20), *BATCH_LIST[5:]]
    whole = damaged(batches, (4, MAGIC_AT))
    assert kept_of(whole) == without(4)
    assert kept_of(damaged(batches, (4, LENGTH_AT + 1))) == without(4)


def test_index_proves_the_batches_between_two_breaks_of_lengths() -> None:
    content = damaged(BATCH_LIST, (3, LENGTH_AT), (8, LENGTH_AT))
    size = len(BATCH_LIST[0])
    assert kept_of(content) == without(3, 4, 5, 6, 7, 8), "nothing leads from 4 to a known place"
    assert kept_of(content, frozenset({6 * size})) == without(3, 8)


def test_heaviest_choice_of_ranges_rises() -> None:
    assert heaviest_rising([]) == []
    assert heaviest_rising([(0, 3), (3, 6)]) == [0, 1]
    assert heaviest_rising([(50, 53), (0, 3), (3, 6)]) == [1, 2]
    assert heaviest_rising([(0, 3), (9, 40), (3, 6), (6, 9)]) == [0, 1]
    assert heaviest_rising([(5, 5), (7, 7), (5, 5), (5, 5)], [1, 1, 1, 1]) == [0, 2, 3]


def test_heaviest_choice_is_that_of_trying_all() -> None:
    import itertools
    import random

    rng = random.Random(8)
    for _ in range(200):
        ranges = [(start, start + rng.randint(0, 4)) for start in (rng.randrange(12) for _ in range(7))]
        weights = [rng.randint(1, 5) for _ in ranges]
        chosen = heaviest_rising(ranges, weights)
        best = 0
        for size in range(len(ranges) + 1):
            for slots in itertools.combinations(range(len(ranges)), size):
                if all(ranges[a][1] <= ranges[b][0] for a, b in itertools.pairwise(slots)):
                    best = max(best, sum(weights[slot] for slot in slots))
        assert all(ranges[a][1] <= ranges[b][0] for a, b in itertools.pairwise(chosen))
        assert sum(weights[slot] for slot in chosen) == best


def test_empty_batch_is_whole_and_holds_nothing() -> None:
    made = empty_batch(7, 12, 3)
    header = read_header(made)
    assert (header.base_offset, header.next_offset, header.records_count, header.leader_epoch) == (7, 12, 0, 3)
    assert list(decode_batch(memoryview(made))) == []


def repaired(disk: MemoryDisk, recorded: Recorded) -> bytes:
    plan = plan_repair(disk, DIRECTORY, recorded)
    execute_repair(disk, plan, f"{DIRECTORY}.x.damaged")
    return disk.files()[PATH]


@pytest.mark.parametrize("number", [0, 4, BATCHES - 2])
@pytest.mark.parametrize("wrong", [0, 90])
def test_wrong_leader_epoch_is_corrected_and_loses_nothing(number: int, wrong: int) -> None:
    batches = [batch(each, epoch=5) for each in range(BATCHES)]
    content = b"".join([*batches[:number], batch(number, epoch=wrong), *batches[number + 1 :]])
    disk = disk_with(content)
    plan = plan_repair(disk, DIRECTORY, Recorded(END, 0))
    if (number, wrong) == (0, 0):
        assert not plan.is_needed, "an epoch may begin with the second batch"
        return
    assert plan.losses == []
    assert plan.epochs_corrected == 1
    assert repaired(disk, Recorded(END, 0)) == b"".join(batches)


def test_torn_tail_above_the_flushed_end_is_no_damage() -> None:
    disk = disk_with(b"".join(BATCH_LIST)[:-5])
    assert not plan_repair(disk, DIRECTORY, Recorded(END - RECORDS, 0)).is_needed
    plan = plan_repair(disk, DIRECTORY, Recorded(END, 0))
    assert [(loss.first_offset, loss.end_offset) for loss in plan.losses] == [(END - RECORDS, END)]


def test_last_batch_with_a_wrong_base_offset_does_not_move_the_end() -> None:
    disk = disk_with(b"".join([*BATCH_LIST[:-1], batch(BATCHES + 40)]))
    plan = plan_repair(disk, DIRECTORY, Recorded(END, 0))
    assert [(loss.first_offset, loss.end_offset) for loss in plan.losses] == [(END - RECORDS, END)]


def test_damage_below_the_log_start_loses_nothing_and_is_repaired() -> None:
    disk = disk_with(damaged(BATCH_LIST, (1, RECORD_BYTE)))
    plan = plan_repair(disk, DIRECTORY, Recorded(END, 3 * RECORDS))
    assert plan.losses == []
    assert plan.is_needed


def test_gaps_of_a_compacted_log_are_no_damage_and_stay() -> None:
    batches = [BATCH_LIST[number] for number in without(2, 3, 7)]
    disk = disk_with(b"".join(batches))
    recorded = Recorded(END, 0, may_have_gaps=True)
    assert not plan_repair(disk, DIRECTORY, recorded).is_needed
    content = damaged(batches, (1, RECORD_BYTE))
    found = repaired(disk_with(content), recorded)
    assert found == BATCH_LIST[0] + empty_batch(RECORDS, 4 * RECORDS, 0) + b"".join(batches[2:])


def test_unexpected_gaps_cost_no_batch() -> None:
    """A policy that was changed, or a mark that got lost: what is whole stays."""
    batches = [BATCH_LIST[number] for number in without(2, 3, 7)]
    disk = disk_with(b"".join(batches))
    plan = plan_repair(disk, DIRECTORY, Recorded(END, 0))
    assert plan.kept_records == len(batches) * RECORDS


def test_log_without_any_file_keeps_its_end() -> None:
    disk = disk_with(b"", path=f"{DIRECTORY}/{0:020d}.index")
    assert len(repaired(disk, Recorded(END, 0))) == len(empty_batch(0, END, -1))
    assert f"{DIRECTORY}/{0:020d}.index" not in disk.files()


@pytest.mark.parametrize("break_note", [False, True])
def test_compaction_that_was_cut_short_is_settled_first(break_note: bool) -> None:
    from ottla.maintenance.repair import settle_swap

    disk = disk_with(b"".join(BATCH_LIST))
    settle_swap(disk, DIRECTORY, f"{DIRECTORY}.x.damaged")
    assert not disk.exists(f"{DIRECTORY}.x.damaged")
    if not break_note:
        return
    for name in ("compaction-swap", f"{0:020d}.log.cleaned"):
        file = disk.open(f"{DIRECTORY}/{name}", create=True)
        write_fully(file, 0, b"what is this")
        file.close()
    settle_swap(disk, DIRECTORY, f"{DIRECTORY}.x.damaged")
    assert sorted(disk.list_directory(f"{DIRECTORY}.x.damaged")) == [f"{0:020d}.log.cleaned", "compaction-swap"]
    assert disk.list_directory(DIRECTORY) == [f"{0:020d}.log"]
