"""The checks of `./dev chaos cluster`: they find planted faults, and nothing where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.chaos import mixed
from tests.cluster.chaos_run import described, differences, longest_silence_s, unknown_commits
from tests.cluster.faults import FAULTS
from tests.history.clients import PARTITIONS_COUNT, TOPIC
from tests.history.operations import Commit, Outcome, Send


@pytest.fixture
def replicas(tmp_path: Path) -> list[Path]:
    """Three brokers' directories with the same partitions, of two segments each."""
    directories = [tmp_path / f"broker-{node_id}" for node_id in (1, 2, 3)]
    for directory in directories:
        for index in range(PARTITIONS_COUNT):
            partition = directory / f"{TOPIC}-{index}"
            partition.mkdir(parents=True)
            (partition / "00000000000000000000.log").write_bytes(b"first")
            (partition / "00000000000000000005.log").write_bytes(b"second")
    return directories


def _append(directory: Path, index: int, data: bytes) -> None:
    with (directory / f"{TOPIC}-{index}" / "00000000000000000005.log").open("ab") as log:
        log.write(data)


def test_equal_replicas_have_no_difference(replicas: list[Path]) -> None:
    assert differences(replicas) == []


def test_longer_replica_is_a_difference(replicas: list[Path]) -> None:
    _append(replicas[2], 4, b"!")
    assert differences(replicas) == [f"{TOPIC}-4: broker-3 differs from broker-1 at byte 11 (12 and 11 bytes)"]


def test_different_byte_is_a_difference(replicas: list[Path]) -> None:
    for directory, data in zip(replicas, (b"abc", b"abc", b"aXc"), strict=True):
        _append(directory, 0, data)
    assert differences(replicas) == [f"{TOPIC}-0: broker-3 differs from broker-1 at byte 12 (14 and 14 bytes)"]


def test_segments_may_start_at_different_offsets(replicas: list[Path]) -> None:
    partition = replicas[1] / f"{TOPIC}-1"
    (partition / "00000000000000000005.log").unlink()
    (partition / "00000000000000000000.log").write_bytes(b"firstsecond")
    assert differences(replicas) == []


def test_silence_is_measured_within_a_partition_and_only_between_acknowledgements() -> None:
    def send(partition: int, second: float, outcome: Outcome = Outcome.OK) -> Send:
        return Send("p", 0, int(second * 1e9), outcome, partition, f"{partition}-{second}", 0)

    history = [send(0, 1), send(0, 2), send(1, 1.5), send(1, 8.5), send(0, 9), send(1, 5, Outcome.UNKNOWN)]
    assert longest_silence_s(history) == 7.0
    assert longest_silence_s([send(0, 1)]) == 0


def test_commit_that_was_never_settled_is_described_with_its_member_and_the_error() -> None:
    def commit(offset: int, second: float, outcome: Outcome, error: str = "") -> Commit:
        return Commit("member0", offset, int(second * 1e9) + offset, outcome, 3, offset, error)

    lost = commit(7, 1.24, Outcome.UNKNOWN, "_TRANSPORT: disconnected")
    died = commit(9, 0, Outcome.UNKNOWN)
    history = [commit(7, 0, Outcome.UNKNOWN), lost, commit(8, 0, Outcome.UNKNOWN), commit(8, 1, Outcome.OK), died]
    assert unknown_commits(history) == [lost, died]
    assert described(lost) == ("unknown commit of member0: partition 3 offset 7 after 1.24 s: _TRANSPORT: disconnected")
    assert described(died).endswith("its client ended")


def test_plan_has_the_requested_number_of_faults_in_a_fixed_order_for_a_seed() -> None:
    plan = mixed(sorted(FAULTS), 40, 7)
    assert len(plan) == 40
    assert plan == mixed(sorted(FAULTS), 40, 7)
    assert set(plan) <= FAULTS.keys()
    assert len({frozenset(mixed(sorted(FAULTS), 40, seed)) for seed in range(10)}) > 5, "each round has other kinds"
    assert mixed(["kill-leader"], 3, 1) == ["kill-leader"] * 3
