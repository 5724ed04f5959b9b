from __future__ import annotations

import json
import struct
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from ottla.cli.exit_status import CALLED_WRONGLY, FAILED
from ottla.cli.log.stopped_directory import StoppedDirectory, write_new_tree
from ottla.cli.program import run
from ottla.coordination.tree import Tree
from ottla.model.identifiers import TopicPartition
from ottla.records.builder import build_batch
from ottla.records.checksum import crc32c
from ottla.records.header import (
    ATTRIBUTES_AT,
    BASE_OFFSET,
    CONTROL_BIT,
    CRC,
    CRC_AT,
    HEADER,
    LEADER_EPOCH,
    LEADER_EPOCH_AT,
    MAGIC_AT,
    TRANSACTIONAL_BIT,
)
from ottla.records.record import Record
from ottla.runtime.clock import SystemClock
from ottla.runtime.offload import run_inline
from ottla.runtime.posix_disk import PosixDisk
from ottla.storage.directory.log_directory import LogDirectory
from ottla.storage.log_config import LogConfig
from ottla.storage.producers.aborted_transactions import AbortedIndex

TOPIC_ID = uuid.UUID(int=99)
BATCHES = 30
META = "#\nversion=1\ncluster.id=abc\nnode.id=1\ndirectory.id=xyz\n"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """What Apache Kafka would leave: two partitions of several segments, in files that it would read too."""
    path = tmp_path / "kafka"
    logs = LogDirectory.open(
        PosixDisk(), str(path), clock=SystemClock(), config_of=lambda _: LogConfig(segment_bytes=1_000)
    )
    for log in run_inline(logs.create([(TopicPartition("orders", index), TOPIC_ID) for index in range(2)])):
        log.start_epoch(7)
        for number in range(BATCHES):
            batch = build_batch([Record(0, 1_000 + number, b"key", b"value %d" % number)])
            log.append(memoryview(batch), HEADER.unpack_from(batch), 1_000)
    logs.close()
    (path / "flushed-ends").unlink()
    (path / "meta.properties").write_text(META)
    (path / "log-start-offset-checkpoint").write_text("0\n1\norders 1 5\n")
    (path / "__consumer_offsets-0").mkdir()
    return path


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def opened(data_dir: Path) -> LogDirectory:
    return LogDirectory.open(PosixDisk(), str(data_dir), clock=SystemClock())


@pytest.mark.parametrize("how", ["--copy", "--link"])
def test_import_makes_topics_with_their_ids_epochs_starts_and_records(
    source: Path, tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data_dir = tmp_path / "ottla"
    assert run(["log", "import", str(source), "--data-dir", str(data_dir), how]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("orders: partitions=2 records=60 batches=60 bytes=")
    assert "stopped cleanly" in err
    with StoppedDirectory(str(data_dir)) as target:
        [topic] = target.topics.by_name.values()
        assert (topic.name, topic.topic_id) == ("orders", TOPIC_ID)
        assert [partition.state.leader_epoch for partition in topic.partitions] == [8, 8]
        assert target.configs.topic("orders") == {"retention.ms": "-1", "retention.bytes": "-1"}
    logs = opened(data_dir)
    assert not logs.failed
    for index, start in enumerate([0, 5]):
        log = logs.logs[TopicPartition("orders", index)]
        assert (log.log_start_offset, log.log_end_offset, log.leader_epoch) == (start, BATCHES, 7)
        assert [path.read_bytes() for path in segments(data_dir / f"orders-{index}")] == [
            path.read_bytes() for path in segments(source / f"orders-{index}")
        ]
    logs.close()
    *closed, active = segments(data_dir / "orders-0")
    assert {path.stat().st_nlink for path in closed} == {2 if how == "--link" else 1}
    assert active.stat().st_nlink == 1


def forget_topics(data_dir: Path) -> None:
    """Leave the tree as it was before any topic was registered."""
    (data_dir / "tree.sqlite").unlink()

    async def nothing_more(tree: Tree) -> None:
        pass

    write_new_tree(str(data_dir / "tree.sqlite"), nothing_more)


def test_import_goes_on_after_one_that_was_interrupted(source: Path, tmp_path: Path) -> None:
    data_dir = tmp_path / "ottla"
    assert run(["log", "import", str(source), "--data-dir", str(data_dir)]) == 0
    # A crash before the topic was registered, and one while files were copied.
    forget_topics(data_dir)
    (data_dir / "orders-1").rename(data_dir / "orders-1.importing")
    assert run(["log", "import", str(source), "--data-dir", str(data_dir)]) == 0
    assert sorted(path.name for path in data_dir.glob("orders*")) == ["orders-0", "orders-1"]
    logs = opened(data_dir)
    assert {log.log_end_offset for log in logs.logs.values()} == {BATCHES}
    logs.close()


def test_import_does_not_touch_a_directory_of_another_topic(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data_dir = tmp_path / "ottla"
    assert run(["log", "import", str(source), "--data-dir", str(data_dir)]) == 0
    forget_topics(data_dir)
    metadata = data_dir / "orders-0" / "partition.metadata"
    metadata.write_bytes((data_dir / "orders-0" / "partition.metadata").read_bytes().replace(b"AAAAY", b"AAAAZ"))
    for more in (["--dry-run"], []):
        assert run(["log", "import", str(source), "--data-dir", str(data_dir), *more]) == FAILED
        err = capsys.readouterr().err
        assert "it is another topic's" in err
        assert "--exclude orders" in err
    assert not list(data_dir.glob("*.importing"))


@pytest.mark.parametrize("how", [["--dry-run"], []])
def test_import_of_a_topic_that_is_there_is_refused_with_what_to_do(
    source: Path, tmp_path: Path, how: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["log", "import", str(source), "--data-dir", str(tmp_path / "ottla")]
    assert run(arguments) == 0
    capsys.readouterr()
    assert run([*arguments, *how]) == FAILED
    err = capsys.readouterr().err
    assert "topic 'orders' exists already" in err
    assert "--exclude orders" in err


@pytest.mark.parametrize("how", [["--dry-run"], []])
def test_import_into_a_directory_of_others_is_refused(
    source: Path, tmp_path: Path, how: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "notes.txt").write_text("")
    assert run(["log", "import", str(source), "--data-dir", str(tmp_path / "theirs"), *how]) == FAILED
    err = capsys.readouterr().err
    assert "is not a data directory" in err
    assert "choose another --data-dir" in err
    assert [path.name for path in (tmp_path / "theirs").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("how", [["--dry-run"], []])
def test_import_into_a_file_is_refused(
    source: Path, tmp_path: Path, how: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert run(["log", "import", str(source), "--data-dir", str(tmp_path / "file"), *how]) == FAILED
    assert "is not a directory\nhint: give a new --data-dir" in capsys.readouterr().err


def test_import_into_the_source_is_refused(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(source.iterdir())
    for inside in (source, source / "new", source / "new" / "deeper"):
        assert run(["log", "import", str(source), "--data-dir", str(inside)]) == FAILED
        assert "hint: give a " in capsys.readouterr().err
    assert sorted(source.iterdir()) == before


def test_dry_run_into_an_empty_directory_leaves_it_empty(source: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert run(["log", "import", str(source), "--data-dir", str(tmp_path / "empty"), "--dry-run"]) == 0
    assert not list((tmp_path / "empty").iterdir())


@pytest.mark.parametrize("how", [["--dry-run"], []])
def test_import_that_does_not_fit_is_refused(
    source: Path, tmp_path: Path, how: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PosixDisk, "free_bytes", lambda _disk, _path: 1_000)
    assert run(["log", "import", str(source), "--data-dir", str(tmp_path / "ottla"), *how]) == FAILED
    assert "and 1000 are free" in capsys.readouterr().err


def test_import_is_refused_while_the_other_broker_runs(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # A lock by record, as Java takes it; those of one process do not meet, so another one holds it.
    script = (
        "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); "
        "print('locked', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(source / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        assert run(["log", "import", str(source), "--data-dir", str(tmp_path / "ottla")]) == FAILED
        assert "is in use: its broker runs" in capsys.readouterr().err
        other.stdin.close()


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


CLEAN = ".kafka_cleanshutdown"


def write_recovery_points(source: Path, offset: int) -> None:
    text = f"0\n2\norders 0 {offset}\norders 1 {BATCHES}\n"
    (source / "recovery-point-offset-checkpoint").write_text(text)


def test_import_refuses_damage_in_the_middle_and_cuts_a_torn_tail(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["log", "import", str(source), "--data-dir", str(tmp_path / "ottla")]
    (source / CLEAN).unlink()
    active = segments(source / "orders-0")[-1]
    active.write_bytes(active.read_bytes() + b"torn")
    assert run([*arguments, "--dry-run"]) == 0
    assert "orders-0: 4 bytes after offset 30 are a write that the crash interrupted" in capsys.readouterr().err
    flip(segments(source / "orders-0")[1], 70)
    assert run(arguments) == FAILED
    assert "the batch's checksum is wrong" in capsys.readouterr().err
    assert not (tmp_path / "ottla").exists()


@pytest.mark.parametrize(
    ("was_clean", "recovery_point", "cut_bytes", "told"),
    [
        (True, BATCHES, 0, "this was whole on the disk once"),
        (True, 0, 0, "this was whole on the disk once"),
        (False, BATCHES, 0, "this was whole on the disk once"),
        # Apache Kafka flushes when a segment rolls: what is behind was acknowledged all the same.
        (False, 0, 0, "a whole batch follows it"),
        (False, 0, 20, "a whole batch follows it"),
    ],
)
def test_import_refuses_a_damaged_batch_in_the_last_segment(
    source: Path,
    tmp_path: Path,
    was_clean: bool,
    recovery_point: int,
    cut_bytes: int,
    told: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    active = segments(source / "orders-0")[-1]
    size_bytes = active.stat().st_size
    batches_count = BATCHES - int(active.stem)
    assert batches_count >= 3
    # The second batch's length and records are wrong: heads do not lead on from there.
    flip(active, size_bytes // batches_count + 11)
    flip(active, size_bytes // batches_count + 70)
    active.write_bytes(active.read_bytes()[: size_bytes - cut_bytes])
    write_recovery_points(source, recovery_point)
    if not was_clean:
        (source / CLEAN).unlink()
    for more in (["--dry-run"], []):
        assert run(["log", "import", str(source), "--data-dir", str(tmp_path / "ottla"), *more]) == FAILED
        err = capsys.readouterr().err
        assert told in err
        assert "--exclude orders" in err
    assert not (tmp_path / "ottla").exists()


@pytest.mark.parametrize("was_clean", [True, False])
def test_import_refuses_a_log_that_ends_below_its_recovery_point(
    source: Path, tmp_path: Path, was_clean: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    write_recovery_points(source, BATCHES + 1)
    if not was_clean:
        (source / CLEAN).unlink()
    assert run(["log", "import", str(source), "--data-dir", str(tmp_path / "ottla")]) == FAILED
    assert "orders-0 ends with offset 30, and its broker had flushed it up to offset 31" in capsys.readouterr().err


def test_import_with_an_unreadable_recovery_checkpoint_says_what_to_do(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (source / "recovery-point-offset-checkpoint").write_text("0\n2\n")
    assert run(["log", "import", str(source), "--data-dir", str(tmp_path / "ottla")]) == FAILED
    assert "let Apache Kafka start and stop on the directory once" in capsys.readouterr().err


def test_import_refuses_the_old_message_format(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(segments(source / "orders-0")[-1], MAGIC_AT)
    assert run(["log", "import", str(source), "--data-dir", str(tmp_path / "ottla")]) == FAILED
    assert "magic byte 3 instead of 2" in capsys.readouterr().err


def transactional(producer_id: int, ending: int | None = None) -> bytearray:
    """A batch of one record of a transaction; or the marker that ends it: 1 commits, 0 aborts."""
    record = Record(0, 1_000, b"key", b"value")
    if ending is not None:
        record = Record(0, 1_000, struct.pack(">hh", 0, ending), struct.pack(">hi", 0, 0))
    batch = build_batch([record])
    fields = list(HEADER.unpack_from(batch))
    fields[5] = TRANSACTIONAL_BIT | (CONTROL_BIT if ending is not None else 0)
    fields[9:12] = producer_id, 0, -1 if ending is not None else 0
    HEADER.pack_into(batch, 0, *fields)
    CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
    return batch


COMMIT, ABORT = 1, 0


@pytest.mark.parametrize(
    ("batches", "aborted", "told"),
    [
        ([transactional(5), transactional(5, COMMIT)], [], None),
        ([transactional(5), transactional(6), transactional(6, COMMIT), transactional(5, COMMIT)], [], None),
        ([transactional(5, ABORT)], [], None),
        ([transactional(5), transactional(5, ABORT)], [(30, 31, 5, 32)], None),
        (
            [transactional(5), transactional(6), transactional(6, ABORT), transactional(5, COMMIT)],
            [(31, 32, 6, 30)],
            None,
        ),
        ([transactional(5), transactional(6), transactional(6, ABORT)], [], "still open, from offset 30 on"),
        ([transactional(5), transactional(5, COMMIT), transactional(5)], [], "still open, from offset 32 on"),
    ],
)
def test_transactions_are_imported_that_have_ended(
    source: Path,
    tmp_path: Path,
    batches: list[bytearray],
    aborted: list[tuple[int, int, int, int]],
    told: str | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    active = segments(source / "orders-0")[-1]
    content = active.read_bytes()
    for number, batch in enumerate(batches):
        stamped = bytearray(batch)
        BASE_OFFSET.pack_into(stamped, 0, BATCHES + number)
        LEADER_EPOCH.pack_into(stamped, LEADER_EPOCH_AT, 7)
        content += stamped
    active.write_bytes(content)
    status = run(["log", "import", str(source), "--data-dir", str(tmp_path / "ottla")])
    err = capsys.readouterr().err
    assert status == (0 if told is None else FAILED), err
    if told is not None:
        assert told in err
        assert "leave the topic out" in err
        assert not (tmp_path / "ottla").exists()
        return
    if len(batches) > 1:
        assert "orders has transactions: all of them have ended" in err
    index = tmp_path / "ottla" / "orders-0" / active.with_suffix(".txnindex").name
    found = AbortedIndex.from_bytes(index.read_bytes()) if index.exists() else AbortedIndex()
    assert found is not None
    assert list(found) == aborted


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("meta.properties", "version=0\nbroker.id=1\n", "with ZooKeeper (version 0)"),
        ("meta.properties", META + "ottla.format=1\n", "is a data directory of Ottla already"),
        ("meta.properties", None, "is no data directory of Apache Kafka"),
        ("orders-0/partition.metadata", None, "its topic's id is not known"),
        ("orders-1/partition.metadata", "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ", "different topic ids"),
    ],
)
def test_import_of_what_is_no_whole_source_says_why(
    source: Path, tmp_path: Path, name: str, content: str | None, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is None:
        (source / name).unlink()
    else:
        (source / name).write_text(content)
    assert run(["log", "import", str(source), "--data-dir", str(tmp_path / "ottla")]) == FAILED
    err = capsys.readouterr().err
    assert told in err
    assert "hint: " in err


def test_import_of_some_partitions_of_a_topic_is_refused(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (source / "orders-0").rename(source / "orders-2")
    assert run(["log", "import", str(source), "--data-dir", str(tmp_path / "ottla")]) == FAILED
    assert "partition 0 of topic orders is not in" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("orders/retention.mss=5\n", "did you mean retention.ms?"),
        ("orders/retention.ms=soon\n", "topic orders: "),
        ("retention.ms=5\n", "is not TOPIC/KEY"),
        ('{"orders": 5}', "has no object of settings"),
        ('{"orders": {"retention.ms": []}}', "is neither text nor a number"),
        ('{"orders"', "Expecting ':'"),
        ("other/retention.ms=5\n", "not among the topics"),
    ],
)
def test_import_with_a_wrong_file_of_settings_says_where(
    source: Path, tmp_path: Path, content: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "settings"
    config.write_text(content)
    status = run(["log", "import", str(source), "--data-dir", str(tmp_path / "ottla"), "--config", str(config)])
    assert status == FAILED
    assert told in capsys.readouterr().err


def test_import_takes_settings_for_a_topic_over_those_for_all(source: Path, tmp_path: Path) -> None:
    config = tmp_path / "settings.json"
    config.write_text(
        json.dumps({"*": {"retention.ms": 5, "segment.bytes": 2_000_000}, "orders": {"retention.ms": "7"}})
    )
    data_dir = tmp_path / "ottla"
    assert run(["log", "import", str(source), "--data-dir", str(data_dir), "--config", str(config)]) == 0
    with StoppedDirectory(str(data_dir)) as target:
        found = target.configs.topic("orders")
    assert found == {"retention.ms": "7", "segment.bytes": "2000000", "retention.bytes": "-1"}


def test_link_and_copy_exclude_each_other(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["log", "import", str(source), "--data-dir", "x", "--link", "--copy"]
    assert run(arguments) == CALLED_WRONGLY
    assert "exclude each other" in capsys.readouterr().err
