from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path

import pytest

from ottla.cli.exit_status import CALLED_WRONGLY, FAILED
from ottla.cli.log.stopped_directory import StoppedDirectory, make_data_directory
from ottla.cli.program import run
from ottla.coordination.imported_topics import ImportedTopic, register
from ottla.coordination.tree import Tree
from ottla.model.identifiers import NodeId, TopicPartition
from ottla.records.builder import build_batch
from ottla.records.header import HEADER
from ottla.records.record import Record
from ottla.runtime.clock import SystemClock
from ottla.runtime.offload import run_inline
from ottla.runtime.posix_disk import PosixDisk
from ottla.storage.directory import directory_tree
from ottla.storage.directory.directory_lock import FileLock
from ottla.storage.directory.log_directory import LogDirectory

ORDERS = TopicPartition("orders", 0)
TOPIC_ID = uuid.UUID(int=77)
BATCHES = 10


def open_logs(path: Path) -> LogDirectory:
    return LogDirectory.open(PosixDisk(), str(path), clock=SystemClock())


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A stopped broker's directory: one topic of one partition with ten batches of two records."""
    path = tmp_path / "data"
    make_data_directory(str(path), 0)

    async def make_topic(tree: Tree) -> None:
        await register(tree, NodeId(0), ImportedTopic("orders", TOPIC_ID, [0], {}))

    with StoppedDirectory(str(path)) as stopped:
        stopped.with_tree(make_topic)
    logs = open_logs(path)
    [log] = run_inline(logs.create([(ORDERS, TOPIC_ID)]))
    log.start_epoch(0)
    for number in range(BATCHES):
        batch = build_batch([Record(0, 1_000 + number, None, b"a"), Record(1, 1_000, None, b"b" * 50)])
        log.append(memoryview(batch), HEADER.unpack_from(batch), 1_000)
    logs.close()
    return path


def segment(data_dir: Path) -> Path:
    return data_dir / "orders-0" / f"{0:020d}.log"


def damage(data_dir: Path, batch: int = 3) -> None:
    """Flip a bit in a record of one batch."""
    content = bytearray(segment(data_dir).read_bytes())
    size_bytes = len(content) // BATCHES
    content[batch * size_bytes + 70] ^= 1
    segment(data_dir).write_bytes(content)


def contents(data_dir: Path) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes()
        for path in data_dir.rglob("*")
        if path.is_file() and not path.name.startswith(("tree.sqlite", ".lock"))
    }


def test_repair_of_a_sound_directory_says_so(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "repair", str(data_dir)]) == 0
    assert capsys.readouterr() == ("", "read 1 partition: nothing is damaged\n")


def test_partition_without_its_directory_is_reported_by_verify_repair_and_doctor(
    data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data_dir / "orders-0").rename(tmp_path / "orders-0")
    (data_dir / "orders-1").mkdir()
    problem = "its directory is gone; it was flushed up to offset 20"
    assert run(["log", "verify", str(data_dir)]) == FAILED
    assert problem in capsys.readouterr().out
    (data_dir / "orders-1").rmdir()
    assert run(["log", "repair", str(data_dir)]) == FAILED
    assert f"orders-0: {problem}; restore it" in capsys.readouterr().err
    assert run(["doctor", "--data-dir", str(data_dir), "--listen", "127.0.0.1:0"]) == FAILED
    assert "directories are gone of partitions that held records: orders-0" in capsys.readouterr().out
    (tmp_path / "orders-0").rename(data_dir / "orders-0")
    assert run(["log", "verify", str(data_dir)]) == 0


def test_directory_that_only_has_the_name_of_a_partition_keeps_no_log_from_its_repair(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data_dir / "photos-1").mkdir()
    (data_dir / "photos-1" / "one.jpg").write_bytes(b"?")
    # What remains of a log is none of these.
    (data_dir / "lost-0").mkdir()
    (data_dir / "lost-0" / f"{500:020d}.index").write_bytes(b"")
    assert run(["log", "verify", str(data_dir)]) == FAILED
    assert "lost-0" in capsys.readouterr().out
    shutil.rmtree(data_dir / "lost-0")
    damage(data_dir)
    assert run(["log", "verify", str(data_dir)]) == 0
    assert "note path=" in (shown := capsys.readouterr().out)
    assert "photos-1" in shown
    assert run(["log", "repair", str(data_dir), "--execute"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("orders-0: lost: 2 offsets in 1 place (")
    assert "read 1 partition, repaired 1" in err
    assert (data_dir / "photos-1" / "one.jpg").exists()


def test_repair_shows_what_would_be_lost_and_changes_nothing(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(data_dir)
    before = contents(data_dir)
    assert run(["log", "repair", str(data_dir)]) == FAILED
    out, err = capsys.readouterr()
    assert out.startswith("orders-0: lost: 2 offsets in 1 place (")
    assert "offsets 6 to 7: " in out
    assert "the batch's checksum is wrong" in out
    assert "nothing was changed, --execute repairs" in err
    assert contents(data_dir) == before


def test_repair_executes_and_the_broker_opens_the_log(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(data_dir)
    damaged = segment(data_dir).read_bytes()
    assert run(["log", "repair", str(data_dir), "orders-0", "--execute", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["partition"] == "orders-0"
    assert told["lost_offsets"] == 2
    assert told["kept_offsets"] == 18
    assert (Path(told["backup"]) / segment(data_dir).name).read_bytes() == damaged
    assert not (data_dir / ".kafka_cleanshutdown").exists(), "the next start reads it as after a crash"
    logs = open_logs(data_dir)
    assert not logs.failed
    assert logs.logs[ORDERS].log_end_offset == 20
    logs.close()
    assert run(["log", "verify", "--deep", str(data_dir)]) == 0
    assert run(["log", "repair", str(data_dir)]) == 0


@pytest.mark.parametrize("content", [None, b"", b"version: 0\ntopic_id: no\n"])
def test_repair_writes_a_missing_or_damaged_topic_id_anew(data_dir: Path, content: bytes | None) -> None:
    metadata = data_dir / "orders-0" / "partition.metadata"
    if content is None:
        metadata.unlink()
    else:
        metadata.write_bytes(content)
    logs = open_logs(data_dir)
    assert ORDERS in logs.failed
    logs.close()
    assert run(["log", "repair", str(data_dir)]) == FAILED
    assert run(["log", "repair", str(data_dir), "--execute"]) == 0
    logs = open_logs(data_dir)
    assert logs.logs[ORDERS].topic_id == TOPIC_ID
    assert logs.logs[ORDERS].log_end_offset == 20
    logs.close()


def test_repair_is_refused_while_the_broker_runs(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = FileLock()
    lock.acquire(str(data_dir))
    try:
        assert run(["log", "repair", str(data_dir)]) == FAILED
    finally:
        lock.release()
    err = capsys.readouterr().err
    assert "is in use by process" in err
    assert "hint: stop the broker first" in err


@pytest.mark.parametrize("name", ["data", "data/processes/broker-1"])
def test_repair_of_a_directory_of_several_processes_is_refused_with_the_way_to_it(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data" / "processes").mkdir(parents=True)
    directory = tmp_path / name
    make_data_directory(str(directory), 0)
    directory_tree.mark_shared(PosixDisk(), str(directory), directory_tree.OF_PROCESSES)
    assert run(["log", "repair", str(directory), "--execute"]) == FAILED
    err = capsys.readouterr().err
    assert f"{directory} belongs to one of the brokers of `ottla serve --processes`" in err
    assert f"`ottla serve --data-dir {tmp_path / 'data'} --processes 1` gives all partitions to one broker" in err


def test_repair_of_several_processes_that_have_lost_their_tree_says_how_it_becomes_possible(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker_1 = data_dir / "processes" / "broker-1"
    make_data_directory(str(broker_1), 1)
    (data_dir / "orders-0").rename(broker_1 / "orders-0")
    properties = data_dir / "meta.properties"
    properties.write_text(properties.read_text() + "cluster.id=AAAACAAAAAAAAAAAAAAABQ\nottla.tree=processes\n")
    (data_dir / "tree.sqlite").unlink()
    assert run(["log", "repair", str(data_dir), "--execute"]) == FAILED
    err = capsys.readouterr().err
    assert f"move the partitions' directories from {data_dir}/processes/broker-* to {data_dir}" in err
    assert "remove the line ottla.tree=processes from meta.properties" in err
    # As it says.
    (broker_1 / "orders-0").rename(data_dir / "orders-0")
    (data_dir / "processes").rename(data_dir.parent / "aside")
    properties.write_text(properties.read_text().replace("ottla.tree=processes\n", ""))
    assert run(["log", "repair", str(data_dir), "--execute"]) == 0
    assert "the tree is rebuilt from the logs, with 1 topic" in capsys.readouterr().out
    logs = open_logs(data_dir)
    assert logs.logs[ORDERS].log_end_offset == 2 * BATCHES
    logs.close()


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["DIR/missing"], FAILED, "is not a directory"),
        (["DIR/orders-0"], FAILED, "is not a data directory of Ottla"),
        (["DIR", "order-0"], FAILED, "did you mean orders-0?"),
        (["DIR", "--execute", "--dry-run"], CALLED_WRONGLY, "exclude each other"),
        ([], CALLED_WRONGLY, "Missing argument 'DIR'"),
    ],
)
def test_repair_names_an_impossible_argument(
    data_dir: Path, arguments: list[str], status: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["log", "repair", *(each.replace("DIR", str(data_dir)) for each in arguments)]) == status
    assert told in capsys.readouterr().err


def test_repair_of_a_directory_without_topic_id_and_topic_is_refused(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data_dir / "orders-0" / "partition.metadata").unlink()
    (data_dir / "orders-0").rename(data_dir / "strangers-0")
    assert run(["log", "repair", str(data_dir), "--execute"]) == FAILED
    assert "the broker has no topic strangers" in capsys.readouterr().err


def lose_record(data_dir: Path, *, was_clean: bool = False) -> None:
    (data_dir / "flushed-ends").unlink()
    if not was_clean:
        (data_dir / ".kafka_cleanshutdown").unlink()


def test_repair_writes_a_lost_record_anew_when_the_log_is_whole(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lose_record(data_dir)
    before = contents(data_dir)
    assert run(["log", "repair", str(data_dir)]) == FAILED
    shown = capsys.readouterr().out
    assert "records may be lost at its end, kept: 20 offsets" in shown
    assert "nothing proves that it ended at offset 20" in shown
    assert contents(data_dir) == before
    assert run(["log", "repair", str(data_dir), "--execute"]) == 0
    assert "repaired: the record says 20 from now on; no other file was changed" in capsys.readouterr().out
    assert not list(data_dir.glob("*.damaged"))
    logs = open_logs(data_dir)
    assert logs.logs[ORDERS].log_end_offset == 2 * BATCHES
    logs.abandon()
    # From now on the record distinguishes a torn tail from lost records again.
    segment(data_dir).write_bytes(segment(data_dir).read_bytes()[:-1])
    logs = open_logs(data_dir)
    assert "flushed up to offset 20" in str(logs.failed[ORDERS])
    logs.abandon()


def test_repair_without_a_record_keeps_whole_batches_after_damaged_bytes_and_cuts_what_is_none(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(data_dir, batch=3)
    with segment(data_dir).open("ab") as file:
        file.write(b"torn")
    lose_record(data_dir)
    assert run(["log", "repair", str(data_dir), "--execute", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["lost_offsets"], told["kept_offsets"], told["tail_bytes"]) == (2, 2 * BATCHES - 2, 4)
    assert told["flushed_end_lost"]
    assert (Path(told["backup"]) / segment(data_dir).name).read_bytes().endswith(b"torn")
    logs = open_logs(data_dir)
    assert logs.logs[ORDERS].log_end_offset == 2 * BATCHES
    logs.abandon()


def test_lost_record_is_no_damage_after_a_clean_stop(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lose_record(data_dir, was_clean=True)
    before = contents(data_dir)
    assert run(["log", "repair", str(data_dir)]) == 0
    assert "nothing is damaged" in capsys.readouterr().err
    assert contents(data_dir) == before
    assert run(["log", "verify", str(data_dir)]) == 0
    assert "note" in (shown := capsys.readouterr().out)
    assert "no record of how far orders-0 was flushed: the next start recreates it" in shown


def test_repair_of_one_log_keeps_the_proof_that_the_others_were_stopped_cleanly(data_dir: Path) -> None:
    logs = open_logs(data_dir)
    [other] = run_inline(logs.create([(TopicPartition("orders", 1), TOPIC_ID)]))
    other.start_epoch(0)
    batch = build_batch([Record(0, 1_000, None, b"a")])
    other.append(memoryview(batch), HEADER.unpack_from(batch), 1_000)
    logs.close()
    damage(data_dir)
    lose_record(data_dir, was_clean=True)
    assert run(["log", "repair", str(data_dir), "orders-0", "--execute"]) == 0
    logs = open_logs(data_dir)
    assert not logs.failed
    assert not logs.was_clean
    logs.abandon()
