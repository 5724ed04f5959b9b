"""A directory of logs whose tree.sqlite is gone or damaged: who says so, and what `ottla log repair` makes of it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.cli.exit_status import FAILED, INTERRUPTED
from ottla.cli.log.copied_tree import CopiedTree, read_copied_tree
from ottla.cli.log.stopped_directory import StoppedDirectory, make_data_directory
from ottla.cli.program import run
from ottla.coordination.broker_registry import cluster_id
from ottla.coordination.configs import ConfigEntity, ConfigRegistry
from ottla.coordination.embedded.errors import TreeStoreError, TreeStoreLost
from ottla.coordination.imported_topics import ImportedTopic, register
from ottla.coordination.tree import Tree
from ottla.model.identifiers import NodeId, TopicPartition, uuid_to_text
from ottla.records.builder import build_batch
from ottla.records.header import HEADER
from ottla.records.record import Record
from ottla.runtime.clock import SystemClock
from ottla.runtime.offload import run_inline
from ottla.runtime.posix_disk import PosixDisk
from ottla.storage.directory.log_directory import LogDirectory

ORDERS_ID, CLICKS_ID, OFFSETS_ID = (uuid.UUID(int=number) for number in (1001, 1002, 1003))
CLUSTER_ID = uuid.UUID(int=2000)
TOPICS = {
    "orders": ImportedTopic("orders", ORDERS_ID, [0, 0, 0], {"retention.ms": "1000", "max.message.bytes": "2000000"}),
    "clicks": ImportedTopic("clicks", CLICKS_ID, [0], {}),
    "__consumer_offsets": ImportedTopic("__consumer_offsets", OFFSETS_ID, [0], {"cleanup.policy": "compact"}),
}


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A stopped broker's directory: three topics, whose partitions have one batch of two records each."""
    path = tmp_path / "data"
    make_data_directory(str(path), 0)

    async def fill(tree: Tree) -> None:
        await cluster_id(tree, new_id=lambda: CLUSTER_ID)
        for topic in TOPICS.values():
            await register(tree, NodeId(0), topic)
        configs = ConfigRegistry(tree)
        await configs.update(ConfigEntity.group("readers"), lambda _: {"consumer.session.timeout.ms": "50000"})

    with StoppedDirectory(str(path)) as stopped:
        stopped.with_tree(fill)
    logs = LogDirectory.open(PosixDisk(), str(path), clock=SystemClock(), cluster_id=uuid_to_text(CLUSTER_ID))
    wanted = [
        (TopicPartition(topic.name, index), topic.topic_id)
        for topic in TOPICS.values()
        for index in range(len(topic.leader_epochs))
    ]
    for log in run_inline(logs.create(wanted)):
        log.start_epoch(4)
        batch = build_batch([Record(0, 1_000, None, b"a"), Record(1, 1_000, None, b"b")])
        log.append(memoryview(batch), HEADER.unpack_from(batch), 1_000)
    logs.close()
    return path


def contents(data_dir: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in data_dir.rglob("*") if path.is_file() and path.name != ".lock"}


def tree_of(data_dir: Path) -> CopiedTree:
    return read_copied_tree(str(data_dir / "tree.sqlite"))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


@pytest.mark.parametrize(
    ("ruin", "told"),
    [
        (Path.unlink, "tree.sqlite: is missing"),
        (lambda path: path.write_bytes(b""), "is empty"),
        (truncate, "malformed"),
        (lambda path: path.write_bytes(b"no database at all" * 100), "is not an SQLite database"),
    ],
    ids=["missing", "empty", "truncated", "no database"],
)
def test_lost_tree_is_named_by_doctor_verify_and_repair_and_nothing_is_changed(
    data_dir: Path, ruin: Callable[[Path], None], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ruin(data_dir / "tree.sqlite")
    before = contents(data_dir)
    assert run(["doctor", "--data-dir", str(data_dir), "--listen", "127.0.0.1:0", "--json"]) == FAILED
    findings = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    [problem] = [each for each in findings if each["level"] == "problem" and each["area"] == "tree"]
    assert told in problem["text"]
    assert "ottla log repair" in problem["advice"]
    assert run(["log", "verify", str(data_dir)]) == FAILED
    assert told in capsys.readouterr().out
    assert run(["log", "repair", str(data_dir)]) == FAILED
    out, err = capsys.readouterr()
    assert told in out
    assert "the tree is lost: nothing was changed, --execute repairs" in err
    assert contents(data_dir) == before


def test_tree_of_another_version_is_named_and_not_rebuilt(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = bytearray((data_dir / "tree.sqlite").read_bytes())
    content[60:64] = (77).to_bytes(4, "big")  # SQLite's user_version
    (data_dir / "tree.sqlite").write_bytes(content)
    before = contents(data_dir)
    for verb in (
        ["doctor", "--listen", "127.0.0.1:0", "--data-dir"],
        ["log", "verify"],
        ["log", "repair", "--execute"],
    ):
        assert run([*verb, str(data_dir)]) == FAILED
        out, err = capsys.readouterr()
        assert "has format 77, this program knows 1" in out + err
    assert "use the version of ottla that wrote it" in err
    assert contents(data_dir) == before


def test_import_into_a_directory_that_lost_its_tree_is_refused_and_writes_nothing(
    data_dir: Path, tmp_path: Path
) -> None:
    (data_dir / "tree.sqlite").unlink()
    before = contents(data_dir)
    with pytest.raises(TreeStoreLost), StoppedDirectory(str(data_dir)):
        pass
    assert contents(data_dir) == before


def test_whole_tree_is_a_finding_of_doctor_that_is_ok(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["doctor", "--data-dir", str(data_dir), "--listen", "127.0.0.1:0", "--json"])
    findings = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["text"] for each in findings if each["area"] == "tree"] == ["tree.sqlite has 3 topics, and is whole"]


def test_repair_rebuilds_topics_ids_and_partitions_with_retention_off(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    former = tree_of(data_dir)
    (data_dir / "tree.sqlite").unlink()
    (data_dir / "orders-1" / "compacted").write_bytes(b"0\n")
    assert run(["log", "repair", str(data_dir), "--execute"]) == 0
    out = capsys.readouterr().out
    assert "retention is off" in out
    found = tree_of(data_dir)
    assert found.cluster_id == former.cluster_id == uuid_to_text(CLUSTER_ID)
    assert {name: (topic.topic_id, len(topic.partitions)) for name, topic in found.topics.by_name.items()} == {
        name: (topic.topic_id, len(topic.leader_epochs)) for name, topic in TOPICS.items()
    }
    [partition] = found.topics.by_name["clicks"].partitions
    assert (partition.replicas, partition.state.leader, partition.state.leader_epoch) == ((0,), 0, 5)
    assert found.configs.topic("clicks") == {"retention.ms": "-1", "retention.bytes": "-1"}
    assert found.configs.topic("orders") == {
        "cleanup.policy": "compact",
        "min.compaction.lag.ms": str(2**63 - 1),
        "retention.ms": "-1",
        "retention.bytes": "-1",
    }
    assert found.configs.topic("__consumer_offsets")["cleanup.policy"] == "compact"
    assert "retention.ms" not in found.configs.topic("__consumer_offsets")
    assert run(["log", "repair", str(data_dir)]) == 0
    logs = LogDirectory.open(PosixDisk(), str(data_dir), clock=SystemClock(), cluster_id=uuid_to_text(CLUSTER_ID))
    assert len(logs.logs) == 5
    logs.close()


def test_repair_takes_settings_from_a_file(data_dir: Path, tmp_path: Path) -> None:
    (data_dir / "tree.sqlite").unlink()
    settings = tmp_path / "topics.properties"
    settings.write_text("orders/retention.ms=86400000\n")
    assert run(["log", "repair", str(data_dir), "--execute", "--settings", str(settings)]) == 0
    found = tree_of(data_dir).configs
    assert found.topic("orders") == {"retention.ms": "86400000", "retention.bytes": "-1"}
    assert found.topic("clicks") == {"retention.ms": "-1", "retention.bytes": "-1"}


def test_repair_takes_settings_of_topics_and_groups_from_a_former_tree(data_dir: Path, tmp_path: Path) -> None:
    former = tree_of(data_dir)
    (tmp_path / "former").mkdir()
    (data_dir / "tree.sqlite").rename(tmp_path / "former" / "tree.sqlite")
    assert run(["log", "repair", str(data_dir), "--execute", "--settings", str(tmp_path / "former")]) == 0
    assert tree_of(data_dir).configs.settings == former.configs.settings


def test_repair_refuses_settings_of_topics_that_are_not_there(
    data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data_dir / "tree.sqlite").unlink()
    settings = tmp_path / "topics.properties"
    settings.write_text("order/retention.ms=86400000\n")
    assert run(["log", "repair", str(data_dir), "--execute", "--settings", str(settings)]) == FAILED
    assert "has settings for order, which are not among the topics" in capsys.readouterr().err
    assert not (data_dir / "tree.sqlite").exists()


def test_repair_tells_partitions_that_are_gone_and_ids_that_nothing_says(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data_dir / "tree.sqlite").unlink()
    for name in ("orders-1", "orders-2"):
        (data_dir / name).rename(data_dir.parent / name)
    (data_dir / "clicks-0" / "partition.metadata").unlink()
    assert run(["log", "repair", str(data_dir), "--json"]) == FAILED
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    topics = {each["topic"]: each for each in shown[0]["topics"]}
    assert topics["orders"]["partitions"] == 3, "flushed-ends knows the last one"
    assert topics["orders"]["gone"] == [1, 2]
    assert topics["clicks"]["is_id_new"]
    assert [each["partition"] for each in shown[1:]] == ["clicks-0"]
    assert run(["log", "repair", str(data_dir), "--execute"]) == FAILED
    out, err = capsys.readouterr()
    assert "no partition says the topic's id: it gets a new one" in out
    assert "orders-1: its directory is gone" in err
    found = tree_of(data_dir).topics.by_name["clicks"].topic_id
    assert uuid_to_text(found) in (data_dir / "clicks-0" / "partition.metadata").read_text()
    for name in ("orders-1", "orders-2"):
        (data_dir.parent / name).rename(data_dir / name)
    assert run(["log", "repair", str(data_dir)]) == 0


def test_repair_leaves_the_directory_of_another_topic_of_the_name(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data_dir / "tree.sqlite").unlink()
    metadata = data_dir / "orders-2" / "partition.metadata"
    metadata.write_text(f"version: 0\ntopic_id: {uuid_to_text(uuid.UUID(int=3003))}")
    assert run(["log", "repair", str(data_dir), "--execute"]) == 0
    out = capsys.readouterr().out
    assert "left as it is, of another topic: orders-2" in out
    assert tree_of(data_dir).topics.by_name["orders"].topic_id == ORDERS_ID


def test_repair_keeps_the_damaged_tree_and_its_log(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    truncate(data_dir / "tree.sqlite")
    (data_dir / "tree.sqlite-wal").write_bytes(b"of the damaged one")
    (data_dir / "tree.sqlite.rebuilding").write_bytes(b"of a repair that was killed")
    damaged = (data_dir / "tree.sqlite").read_bytes()
    assert run(["log", "repair", str(data_dir), "--execute"]) == 0
    [kept] = data_dir.glob("tree.sqlite.*Z.damaged")
    assert kept.read_bytes() == damaged
    [kept_log] = data_dir.glob("tree.sqlite.*Z-wal.damaged")
    assert kept_log.read_bytes() == b"of the damaged one"
    assert str(kept) in capsys.readouterr().out
    assert not (data_dir / "tree.sqlite-wal").exists()
    assert len(tree_of(data_dir).topics.by_name) == 3


@pytest.mark.parametrize("renames_count", range(3))
def test_repair_that_is_interrupted_while_it_puts_the_tree_in_place_begins_again(
    data_dir: Path, renames_count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    truncate(data_dir / "tree.sqlite")
    (data_dir / "tree.sqlite-wal").write_bytes(b"of the damaged one")
    rename = PosixDisk.rename
    done: list[str] = []

    def rename_some(disk: PosixDisk, source: str, target: str) -> None:
        if len(done) == renames_count:
            raise KeyboardInterrupt
        done.append(source)
        rename(disk, source, target)

    with monkeypatch.context() as patched:
        patched.setattr(PosixDisk, "rename", rename_some)
        assert run(["log", "repair", str(data_dir), "--execute"]) == INTERRUPTED
    with pytest.raises(TreeStoreError), StoppedDirectory(str(data_dir)):
        pass
    assert run(["log", "repair", str(data_dir), "--execute"]) == 0
    assert len(tree_of(data_dir).topics.by_name) == 3
    assert not (data_dir / "tree.sqlite-wal").exists()


def test_settings_are_refused_where_the_tree_is_whole(data_dir: Path, tmp_path: Path) -> None:
    settings = tmp_path / "topics.properties"
    settings.write_text("orders/retention.ms=86400000\n")
    assert run(["log", "repair", str(data_dir), "--settings", str(settings)]) == FAILED


def test_directory_of_a_cluster_has_no_tree_and_lacks_none(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data_dir / "tree.sqlite").unlink()
    with (data_dir / "meta.properties").open("a") as file:
        file.write("ottla.tree=zookeeper\n")
    run(["doctor", "--data-dir", str(data_dir), "--listen", "127.0.0.1:0", "--json"])
    assert "tree.sqlite" not in capsys.readouterr().out
    assert run(["log", "verify", str(data_dir)]) == 0


def test_doctor_names_logs_of_other_topics_logs_without_a_topic_and_strange_directories(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metadata = data_dir / "orders-2" / "partition.metadata"
    metadata.write_text(f"version: 0\ntopic_id: {uuid_to_text(uuid.UUID(int=3003))}")
    (data_dir / "clicks-0").rename(data_dir / "clicks-7")
    (data_dir / "photos-2024").mkdir()
    (data_dir / "photos-2024" / "a.jpg").write_bytes(b"x")
    assert run(["doctor", "--data-dir", str(data_dir), "--listen", "127.0.0.1:0", "--json"]) == FAILED
    findings = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    told = {each["level"]: each["text"] for each in findings if each["area"] == "tree" and each["level"] == "problem"}
    assert told["problem"].endswith("neither served nor changed: orders-2")
    warnings = [each["text"] for each in findings if each["area"] == "tree" and each["level"] == "warning"]
    assert warnings == ["logs without a topic: clicks-7", "named like partitions, and no logs: photos-2024"]


def test_doctor_names_a_segment_of_another_log(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = data_dir / "orders-0" / f"{0:020}.log"
    (data_dir / "orders-0" / f"{2:020}.log").write_bytes(own.read_bytes())
    assert run(["doctor", "--data-dir", str(data_dir), "--listen", "127.0.0.1:0", "--json"]) == FAILED
    findings = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    [problem] = [each for each in findings if each["area"] == "tree" and each["level"] == "problem"]
    assert problem["text"].endswith(f"in whose directories they are: orders-0/{2:020}.log")
