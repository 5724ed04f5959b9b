"""The measurement of a load beside live topics: its criteria for flat, late, missing and duplicate."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from bench.raw_client.load import LoadFailed
from bench.spark.backlog import check_each_once
from bench.spark.backlog_table import BACKLOG, JUDGED_FROM_ROWS, OTHER_TAIL, delays_table, memory_table
from bench.spark.contenders import OTTLA
from bench.spark.memory import MemoryWatch, held_apart, means_of_thirds, page_cache_bytes
from bench.spark.tail_process import Delays, TailBroken
from bench.study import ROUND, Observed
from deltalake import write_deltalake

from tests.peers.process_usage import rss_bytes

MS: int = 1_000_000


def test_thirds_are_of_the_time_and_not_of_the_samples() -> None:
    samples = [(0.0, 1.0), (0.1, 3.0), (1.0, 10.0), (2.9, 20.0), (3.0, 40.0)]
    assert means_of_thirds(samples) == [2.0, 10.0, 30.0]


def test_third_without_a_sample_is_as_the_one_before() -> None:
    assert means_of_thirds([(0.0, 5.0), (3.0, 7.0)]) == [5.0, 5.0, 7.0]
    assert means_of_thirds([(1.0, 5.0)]) == [5.0, 5.0, 5.0]


def test_watch_gives_the_peak_and_the_growth_of_everything_that_it_reads() -> None:
    sizes = iter([10_000_000, 90_000_000, 30_000_000])
    are_read = threading.Event()

    def read() -> dict[str, int]:
        size = next(sizes, None)
        if size is None:
            are_read.set()
        return {"worker": 40_000_000 if size is None else size}

    with MemoryWatch(read, every_s=0.001) as watch:
        assert are_read.wait(30)
    figures = watch.figures()
    assert figures["worker_peak_mb"] == 90
    assert figures["worker_growth_mb"] == figures["worker_third_3_mb"] - figures["worker_third_2_mb"]


def test_memory_that_cannot_be_read_fails_the_measurement() -> None:
    def read() -> dict[str, int]:
        raise ProcessLookupError("the worker has ended")

    with pytest.raises(LoadFailed, match="the worker has ended"), MemoryWatch(read):
        pass


def test_own_memory_and_that_of_mapped_files_are_distinguished() -> None:
    own, files = held_apart(os.getpid())
    assert own > 1_000_000
    assert files > 1_000_000
    assert own + files == pytest.approx(rss_bytes(os.getpid()), rel=0.2)
    assert page_cache_bytes() > 0


def value_of(due_ms: int, number: int) -> bytes:
    return (due_ms * MS).to_bytes(8) + number.to_bytes(8)


def test_delays_are_reported_by_the_time_at_which_a_record_was_due() -> None:
    delays = Delays(partitions=1)
    for number, (due_ms, late_ms) in enumerate([(10, 5), (11, 1), (12, 3), (20, 7)]):
        assert not delays.note(0, value_of(due_ms, number), (due_ms + late_ms) * MS)
    assert delays.note(0, value_of(0, 4), 30 * MS)
    figures = delays.figures({"idle": [10 * MS, 13 * MS], "loading": [20 * MS, 21 * MS]})
    assert [figures[f"idle_{name}"] for name in ("records", "p50_ms", "p99_ms", "max_ms")] == [3, 3, 5, 5]
    assert figures["loading_max_ms"] == 7


@pytest.mark.parametrize("number", [8, 10])
def test_gap_or_repetition_in_a_live_topic_is_a_failure(number: int) -> None:
    delays = Delays(partitions=2)
    delays.note(1, value_of(1, 3), 0)
    delays.note(0, value_of(1, 8), 0)
    with pytest.raises(TailBroken, match="9 was next"):
        delays.note(0, value_of(2, number), 0)


def test_live_topic_ends_with_the_last_record_of_each_partition() -> None:
    delays = Delays(partitions=2)
    assert not delays.note(0, value_of(0, 0), 0)
    assert not delays.is_whole
    assert delays.note(1, value_of(0, 0), 0)
    assert delays.count == 0


def table_of(target: Path, rows: Iterable[tuple[int, int]]) -> Path:
    partitions, offsets = zip(*rows, strict=True)
    columns = {
        "partition": pa.array(partitions, pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
        "value": pa.array([b"12345"] * len(offsets), pa.binary()),
    }
    write_deltalake(str(target), pa.table(columns))
    return target


def test_table_with_each_offset_once_is_right(tmp_path: Path) -> None:
    target = table_of(tmp_path / "lake", [(0, 1), (1, 0), (0, 0), (0, 2)])
    assert check_each_once(target, {0: 3, 1: 1, 2: 0}) == 20


@pytest.mark.parametrize(
    ("rows", "trouble"),
    [
        ([(0, 0), (0, 2)], "2 rows with 2 offsets of 3"),
        ([(0, 0), (0, 1), (0, 1)], "3 rows with 2 offsets of 3"),
        ([(0, 0), (0, 1), (0, 2), (0, 2)], "4 rows with 3 offsets of 3"),
        ([(0, 0), (0, 1), (0, 3)], "it ends at 3"),
        ([(0, 0), (0, 1), (0, 2), (7, 0)], "partition 7"),
    ],
)
def test_table_with_a_lost_repeated_or_strange_offset_is_not(
    tmp_path: Path, rows: list[tuple[int, int]], trouble: str
) -> None:
    with pytest.raises(LoadFailed, match=trouble):
        check_each_once(table_of(tmp_path / "lake", rows), {0: 3})


def observed_load(growth_mb: float, rows: int = JUDGED_FROM_ROWS) -> Observed:
    observed = Observed({})
    figures: dict[str, float] = {"rows": rows, "rows_per_s": 1e6, "commits": 2, ROUND: 0}
    for name in ("driver", "jvm", "workers", "broker", "all", "broker_files"):
        figures |= {f"{name}_peak_mb": 100, f"{name}_growth_mb": growth_mb}
    observed.add(BACKLOG, OTTLA, figures)
    return observed


@pytest.mark.parametrize(
    ("growth_mb", "rows", "words"),
    [
        (10, JUDGED_FROM_ROWS, "| yes (+10% of the peak) |"),
        (-40, JUDGED_FROM_ROWS, "| yes (-40% of the peak) |"),
        (11, JUDGED_FROM_ROWS, "| no (+11% of the peak) |"),
        (1, JUDGED_FROM_ROWS - 1, "| too short a load |"),
    ],
)
def test_memory_is_flat_when_its_last_third_is_hardly_more_than_the_second(
    growth_mb: float, rows: int, words: str
) -> None:
    lines = memory_table(observed_load(growth_mb, rows)).splitlines()
    assert next(line for line in lines if line.startswith("| Python workers |")).endswith(words)


def test_delays_are_shown_before_and_beside_the_load() -> None:
    observed = Observed({})
    phases = {f"{phase}_{name}_ms": 1.0 for phase in ("idle", "loading") for name in ("p50", "p99", "max")}
    observed.add(OTHER_TAIL, OTTLA, {**phases, "loading_max_ms": 9.0, "cpu_share": 0.5, ROUND: 0})
    assert "| another topic, 1,000/s | ottla | 1 | 1 | 1 | 1 | 1 | 9 | 0.5 |" in delays_table(observed)
    assert memory_table(observed) == ""
