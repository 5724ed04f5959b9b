from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ottla.cli.exit_status import CALLED_WRONGLY, FAILED
from ottla.cli.program import run
from ottla.model.identifiers import NodeId
from ottla.model.listener import Listener
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.header import BASE_OFFSET
from ottla.records.record import Record
from ottla.runtime.posix_disk import PosixDisk
from ottla.storage.checkpoints import write_meta_properties
from ottla.storage.directory.directory_identity import FORMAT, FORMAT_NAME
from ottla.storage.directory.process_places import RESIZE_FILE, BrokerPlace, ProcessPlaces, place_of, write_places

SEGMENT = "00000000000000000000.log"


def _batch(base_offset: int, codec: Codec = Codec.NONE) -> bytearray:
    records = [
        Record(0, 1_000, b"key", b"value \x1b[2J"),
        Record(1, 2_000, None, b"\xff\xfe", (("trace", b"1"), ("empty", None))),
    ]
    batch = build_batch(records, codec)
    BASE_OFFSET.pack_into(batch, 0, base_offset)
    return batch


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A data directory with one partition of two batches."""
    directory = tmp_path / "orders-0"
    directory.mkdir()
    (directory / SEGMENT).write_bytes(_batch(0) + _batch(2, Codec.ZSTD))
    return directory


def test_dump_shows_a_line_for_each_batch(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "dump", str(partition)]) == 0
    out, err = capsys.readouterr()
    head, first, second = out.splitlines()
    assert head == f"# {partition / SEGMENT}"
    assert first.startswith("batch base_offset=0 last_offset=1 records_count=2 position=0 ")
    assert "base_offset=2 last_offset=3" in second
    assert "codec=zstd" in second
    assert err == ""


def test_dump_shows_records_with_unprintable_bytes_escaped(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "dump", "--records", str(partition / SEGMENT)]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert '  record offset=0 timestamp_ms=1000 key=key value="value \\x1b[2J"' in out
    assert out.count("  record offset=") == 4


def test_dump_as_json_keeps_every_byte(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "dump", "--json", "--records", str(partition)]) == 0
    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(objects) == 6
    assert objects[0]["codec"] == "none"
    assert objects[1] == {
        "offset": 0,
        "timestamp_ms": 1000,
        "key": "key",
        "value": "value \x1b[2J",
        "headers": [],
    }
    assert objects[2] == {
        "offset": 1,
        "timestamp_ms": 2000,
        "key": None,
        "value_base64": "//4=",
        "headers": [{"name": "trace", "value": "1"}, {"name": "empty", "value": None}],
    }


def test_verify_of_a_sound_data_directory_finds_nothing(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "verify", "--deep", str(partition.parent)]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "checked every record of 1 partition: 0 damages, 0 notes\n"


def test_verify_of_a_data_directory_checks_those_of_its_further_processes(
    partition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data_dir, broker_1 = partition.parent, partition.parent / "processes" / "broker-1"
    broker_1.mkdir(parents=True)
    (broker_1.parent / "broker-2").mkdir()
    shutil.copytree(partition, broker_1 / "orders-1")
    brokers = (BrokerPlace(NodeId(0), ".", (9093,)), place_of(NodeId(1), (9094,)), place_of(NodeId(2), (9095,)))
    places = ProcessPlaces((Listener("PLAINTEXT", "127.0.0.1", 9092),), brokers)
    write_places(PosixDisk(), str(data_dir), places)
    assert run(["log", "verify", str(data_dir)]) == 0
    assert "checked headers and indexes of 2 partitions: 0 damages" in capsys.readouterr().err
    segment = broker_1 / "orders-1" / SEGMENT
    segment.write_bytes(segment.read_bytes()[:-3])
    assert run(["log", "verify", str(data_dir)]) == FAILED
    assert str(segment) in capsys.readouterr().out
    # Its directory has a name like that of a partition.
    found = {"version": "1", "node.id": "1", FORMAT_NAME: FORMAT, "ottla.tree": "processes"}
    write_meta_properties(PosixDisk(), str(broker_1), found)
    run(["log", "verify", str(broker_1)])
    assert str(segment) in capsys.readouterr().out


def test_verify_finds_the_lost_tree_of_several_processes_in_the_first_ones_directory(
    partition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {"version": "1", "node.id": "0", FORMAT_NAME: FORMAT, "cluster.id": "a", "ottla.tree": "processes"}
    write_meta_properties(PosixDisk(), str(partition.parent), found)
    # That of a further process has none.
    assert run(["log", "verify", str(partition.parent)]) == 0
    (partition.parent / "processes").mkdir()
    capsys.readouterr()
    assert run(["log", "verify", str(partition.parent)]) == FAILED
    assert "tree.sqlite" in capsys.readouterr().out


@pytest.mark.parametrize(("is_deep", "expected"), [(False, 0), (True, FAILED)])
def test_verify_finds_a_flipped_byte_of_a_record_only_when_deep(
    partition: Path, is_deep: bool, expected: int, capsys: pytest.CaptureFixture[str]
) -> None:
    content = bytearray((partition / SEGMENT).read_bytes())
    content[70] ^= 1
    (partition / SEGMENT).write_bytes(content)
    assert run(["log", "verify", *(["--deep"] if is_deep else []), str(partition)]) == expected
    out = capsys.readouterr().out
    assert out.startswith(f"damage path={partition / SEGMENT} position=0 ") is is_deep


def test_damage_is_shown_by_dump_of_records_and_by_its_exit_status(
    partition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = bytearray((partition / SEGMENT).read_bytes())
    content[70] ^= 1
    (partition / SEGMENT).write_bytes(content)
    assert run(["log", "dump", "--records", str(partition)]) == FAILED
    out, err = capsys.readouterr()
    assert err.startswith("damage path=")
    assert out.count("batch base_offset=") == 2, "it continues after the damage"


def test_verify_of_a_cut_tail_names_its_place(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = (partition / SEGMENT).read_bytes()
    (partition / SEGMENT).write_bytes(whole[:-1])
    assert run(["log", "verify", str(partition)]) == FAILED
    assert f"position={len(_batch(0))} offset=2" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["dump", "verify"])
def test_path_that_is_no_log_is_refused(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("x")
    assert run(["log", verb, str(other)]) == FAILED
    assert run(["log", verb, str(tmp_path)]) == FAILED
    assert run(["log", verb, str(tmp_path / "missing")]) == CALLED_WRONGLY
    assert run(["log", verb]) == CALLED_WRONGLY
    assert capsys.readouterr().err.count("hint: ") == 4


def test_verify_reports_an_unfinished_change_of_the_number_of_processes(
    partition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (partition.parent / "processes").mkdir()
    (partition.parent / "processes" / RESIZE_FILE).touch()
    assert run(["log", "verify", str(partition.parent)]) == 0
    assert "a change of the number of processes was interrupted: start `ottla serve" in capsys.readouterr().out
