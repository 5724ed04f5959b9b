"""Every damage that refuses a log is repaired: exactly the whole batches stay, byte for byte and at their offsets.

The damages are those of `test_log_refuses_damage`: flipped bits, cuts, zeros and runs of bytes at another place.
"""

from __future__ import annotations

import random

import pytest

from ottla.maintenance.inspect import Severity, verify_log
from ottla.maintenance.repair import execute_repair
from ottla.maintenance.repair_plan import Recorded, RepairPlan, plan_repair
from ottla.model.identifiers import NO_PRODUCER_ID
from ottla.storage.directory import flushed_ends
from ottla.testing.memory_disk import MemoryDisk

from .log_model import START_MS, BatchShape, Stored
from .log_place import DATA, LogPlace, append, partition, read_log
from .property_settings import examples, exhaustive, is_tried, timeout_s
from .test_log_refuses_damage import DAMAGES, Written

DAMAGES_COUNT = 40
CRASHES_COUNT = 12
pytestmark = pytest.mark.timeout(timeout_s(DAMAGES_COUNT))

NUMBER = 0
DIRECTORY = f"{DATA}/{partition(NUMBER)}"
BACKUP = f"{DIRECTORY}.1{'.damaged'}"


@pytest.fixture(autouse=True)
def _few_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flushed_ends, "SLOTS_COUNT_MIN", 16)


def recorded(written: Written) -> Recorded:
    return Recorded(written.models[NUMBER].log_end_offset, 0)


def repair(disk: MemoryDisk, written: Written) -> RepairPlan:
    plan = plan_repair(disk, DIRECTORY, recorded(written))
    if plan.is_needed:
        execute_repair(disk, plan, BACKUP)
    return plan


def check_repaired(disk: MemoryDisk, written: Written, plan: RepairPlan) -> list[Stored]:
    """The broker opens the log, its end is unchanged, and all its batches were written at their offsets."""
    assert not [each for each in verify_log(disk, DIRECTORY, deep=True) if each.severity is Severity.DAMAGE]
    assert not plan_repair(disk, DIRECTORY, recorded(written)).is_needed
    place = LogPlace(disk)
    assert not place.directory.failed
    log, model = place.log(NUMBER), written.models[NUMBER]
    assert (log.log_start_offset, log.log_end_offset) == (0, model.log_end_offset)
    found = read_log(log, 0, log.log_end_offset)
    whole = {stored.base_offset: stored.data for stored in model.batches}
    kept = [stored for stored in found if stored.head.records_count]
    for stored in kept:
        assert stored.data[16:] == whole[stored.base_offset][16:]
    lost = {offset for loss in plan.losses for offset in range(loss.first_offset, loss.end_offset)}
    assert lost == set(range(model.log_end_offset)) - {
        offset for stored in kept for offset in range(stored.base_offset, stored.next_offset)
    }
    for stored in found:
        if not stored.head.records_count:
            assert stored.head.producer_id == NO_PRODUCER_ID
    _, appended = append(log, BatchShape(1, 30, START_MS + 99, 99))
    assert appended is not None
    assert appended.base_offset == model.log_end_offset
    written.check_whole(place, 1)
    return kept


@exhaustive
@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize("damage", DAMAGES)
def test_repair_keeps_all_but_the_damaged_batches(damage: str, is_clean: bool) -> None:
    written = Written(is_clean=is_clean)
    model = written.models[NUMBER]
    paths = [path for path in written.paths(".log") if path.startswith(f"{DIRECTORY}/")]
    seeds = list(filter(is_tried, range(examples(DAMAGES_COUNT))))
    repaired_count = 0
    for seed in seeds:
        rng = random.Random(seed)
        disk = written.damaged(rng.choice(paths), DAMAGES[damage], rng)
        if disk is None:
            continue
        plan = repair(disk, written)
        kept = check_repaired(disk, written, plan)
        if not plan.is_needed:
            continue
        repaired_count += 1
        if damage == "flip":
            assert len(kept) >= len(model.batches) - 1, "a flipped bit costs one batch at most"
    assert repaired_count > len(seeds) // 2


@pytest.mark.parametrize("which", [0, 1, 2, -1])
def test_repair_of_a_missing_segment_file_loses_its_offsets_only(which: int) -> None:
    written = Written(is_clean=False)
    paths = sorted(path for path in written.paths(".log") if path.startswith(f"{DIRECTORY}/"))
    disk = written.disk.kill()
    disk.remove(paths[which])
    bases = [int(path.rpartition("/")[2].removesuffix(".log")) for path in paths]
    ends = [*bases[1:], written.models[NUMBER].log_end_offset]
    plan = repair(disk, written)
    check_repaired(disk, written, plan)
    assert [(loss.first_offset, loss.end_offset) for loss in plan.losses] == [(bases[which], ends[which])]


def test_repair_of_a_sound_log_does_nothing() -> None:
    written = Written(is_clean=False)
    before = written.disk.files()
    plan = repair(written.disk, written)
    assert not plan.is_needed
    assert plan.losses == []
    assert plan.kept_records == written.models[NUMBER].log_end_offset
    assert written.disk.files() == before


def test_planning_changes_nothing_and_repair_keeps_replaced_files() -> None:
    written = Written(is_clean=False)
    path = min(path for path in written.paths(".log") if path.startswith(f"{DIRECTORY}/"))
    disk = written.damaged(path, DAMAGES["clear"], random.Random(5))
    assert disk is not None
    before = disk.files()
    plan_repair(disk, DIRECTORY, recorded(written))
    assert disk.files() == before
    plan = repair(disk, written)
    assert disk.files()[f"{BACKUP}/{path.rpartition('/')[2]}"] == before[path]
    assert b'"lost_offsets": %d' % plan.lost_offsets_count in disk.files()[f"{BACKUP}/repair.json"]
    for name, content in disk.files().items():
        if name.startswith(f"{BACKUP}/") and not name.endswith("repair.json"):
            assert before[name.replace(BACKUP, DIRECTORY)] == content


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("stop", ["kill", "crash"])
def test_crash_in_the_middle_of_a_repair_leaves_a_repairable_log(damage: str, stop: str) -> None:
    written = Written(is_clean=False)
    paths = sorted(path for path in written.paths(".log") if path.startswith(f"{DIRECTORY}/"))
    # Two damaged segments and a missing one, so that there is a middle.
    rng = random.Random(3)
    disk = written.damaged(paths[0], DAMAGES[damage], rng)
    assert disk is not None
    content = disk.files()[paths[2]]
    file = disk.open(paths[2])
    file.write_at(len(content) // 2, bytes(64))
    file.close()
    disk.remove(paths[1])
    disk.sync_file_system(DATA)
    whole_plan = plan_repair(disk, DIRECTORY, recorded(written))
    stops: list[MemoryDisk] = []
    run = disk.kill()
    run.on_operation = lambda _: stops.append(run.kill() if stop == "kill" else run.crash(rng))
    execute_repair(run, plan_repair(run, DIRECTORY, recorded(written)), BACKUP)
    run.on_operation = None
    assert len(stops) > 20
    step = max(1, len(stops) // examples(CRASHES_COUNT))
    for number, left in enumerate(stops[::step]):
        plan = plan_repair(left, DIRECTORY, recorded(written))
        # No more than the first loss is ever lost, after any number of restarts of the repair.
        assert {loss.first_offset for loss in plan.losses} <= {loss.first_offset for loss in whole_plan.losses}
        if plan.is_needed:
            execute_repair(left, plan, f"{DIRECTORY}.again{number}.damaged")
        kept = check_repaired(left, written, whole_plan)
        assert kept
