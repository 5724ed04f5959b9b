from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from ottla.cli.doctor import machine as doctor_machine
from ottla.cli.doctor.findings import Finding, Severity
from ottla.cli.doctor.machine import disk_findings, file_system_of, limit_findings, user_findings, version_findings
from ottla.cli.doctor.verb import read_settings
from ottla.cli.exit_status import FAILED
from ottla.cli.log.stopped_directory import make_data_directory
from ottla.cli.program import run
from ottla.model.setting_sources import RawSetting
from ottla.records import record_bounds
from ottla.records.record_bounds import IN_PYTHON, RecordCheck
from ottla.runtime.posix_disk import PosixDisk, VolumeSize
from ottla.runtime.process import OpenFilesLimit


def of_settings(**texts: str) -> list[Finding]:
    return read_settings([f"{name.replace('_', '.')}={text}" for name, text in texts.items()], {}, [])[1]


def worst(findings: Iterable[Finding]) -> list[tuple[Severity, str]]:
    return [(each.level, each.text) for each in findings if each.level is not Severity.OK]


def findings_of(out: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize(
    ("settings", "level", "told"),
    [
        ({"log_segment_byte": "1000000"}, Severity.PROBLEM, "unknown name"),
        ({"zookeeper_max_in_flight_requests": "10"}, Severity.WARNING, "has no effect here"),
        ({"ssl_cipher_suites": "x"}, Severity.WARNING, "protects nothing here"),
        (
            {"log_retention_ms": "90000000", "log_retention_hours": "1"},
            Severity.WARNING,
            "is overridden by log.retention.ms",
        ),
        ({"num_partitions": "many"}, Severity.PROBLEM, "num.partitions"),
        ({"message_max_bytes": "2000000", "socket_request_max_bytes": "1000000"}, Severity.PROBLEM, "never arrives"),
        ({"message_max_bytes": "3000000", "log_segment_bytes": "2000000"}, Severity.PROBLEM, "such a batch is refused"),
        ({"log_retention_bytes": "1000"}, Severity.WARNING, "whole segments are deleted"),
        ({"log_retention_ms": "60000"}, Severity.WARNING, "keeps its records until its segment rolls"),
        ({"default_replication_factor": "3"}, Severity.PROBLEM, "there is one broker"),
        ({"min_insync_replicas": "2"}, Severity.PROBLEM, "there is one broker"),
        ({"log_flush_policy": "os"}, Severity.WARNING, "a power loss can lose"),
    ],
)
def test_settings_that_do_not_fit_are_found_with_advice(settings: dict[str, str], level: Severity, told: str) -> None:
    [finding] = [each for each in of_settings(**settings) if each.level is not Severity.OK]
    assert finding.level is level
    assert told in finding.text
    assert finding.advice


def test_settings_at_their_defaults_and_sound_ones_are_ok() -> None:
    assert worst(of_settings()) == []
    assert worst(of_settings(num_partitions="4", log_retention_hours="24")) == []
    assert worst(of_settings(tree_socket="/run/tree.socket", default_replication_factor="3")) == []
    file = [RawSetting("num.partitions", "4", "line 1"), RawSetting("num.partitions", "5", "line 2")]
    assert worst(read_settings([], {}, file)[1]) == [
        (Severity.WARNING, "num.partitions (line 2) is given more than once; the last one counts")
    ]


def test_variable_that_looks_like_a_slip_is_a_problem() -> None:
    findings = read_settings([], {"OTTLA_LOG_SEGMENT_BYTE": "5"}, [])[1]
    [finding] = [each for each in findings if each.level is not Severity.OK]
    assert finding.advice == "did you mean OTTLA_LOG_SEGMENT_BYTES?"


@pytest.mark.parametrize(
    ("free_bytes", "level"),
    [(100 << 20, Severity.PROBLEM), (2 << 30, Severity.WARNING), (50 << 30, Severity.OK)],
)
def test_room_on_the_disk_is_judged(
    tmp_path: Path, free_bytes: int, level: Severity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_machine, "volume_size", lambda _: VolumeSize(100 << 30, free_bytes))
    [finding] = [each for each in disk_findings(str(tmp_path)) if "are free" in each.text]
    assert finding.level is level


def test_disk_probe_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    found = list(disk_findings(str(tmp_path / "data")))
    assert [each.text for each in found if "a flush takes" in each.text]
    assert list((tmp_path / "data").iterdir()) == []
    assert list(tmp_path.iterdir()) == [tmp_path / "data"]


def test_directory_that_others_may_read_and_a_file_in_its_place_are_found(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert [
        text for _, text in worst(disk_findings(str(tmp_path))) if "is accessible to other users (mode 755)" in text
    ]
    (tmp_path / "file").write_text("")
    assert worst(disk_findings(str(tmp_path / "file"))) == [
        (Severity.PROBLEM, f"{tmp_path / 'file'} is not a directory")
    ]


def test_file_system_is_that_of_the_longest_mount_point() -> None:
    mounts = "/dev/a / ext4 rw 0 0\nhost:/x /mnt/far\\040away nfs4 rw 0 0\ntmpfs /mnt/far tmpfs rw 0 0\n"
    assert file_system_of("/var/lib", mounts) == "ext4"
    assert file_system_of("/mnt/far away/data", mounts) == "nfs4"
    assert file_system_of("/mnt/far/data", mounts) == "tmpfs"
    assert file_system_of("/mnt/farther", mounts) == "ext4"
    assert file_system_of("/var", "") is None


@pytest.mark.parametrize(
    ("limit", "level"), [(500, Severity.PROBLEM), (1_500, Severity.WARNING), (50_000, Severity.OK)]
)
def test_limit_of_open_files_is_held_against_partitions_and_connections(
    tmp_path: Path, limit: int, level: Severity, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        directory = tmp_path / f"orders-{number}"
        directory.mkdir()
        for base in range(2):
            (directory / f"{base:020d}.log").write_bytes(b"")
    monkeypatch.setattr(doctor_machine, "raise_open_files_limit", lambda: OpenFilesLimit(limit, limit))
    [finding] = limit_findings(str(tmp_path), 2**31 - 1)
    assert finding.level is level
    assert "6 segments of 3 partitions" in finding.text


@pytest.mark.parametrize("check", [None, IN_PYTHON])
def test_check_of_records_that_was_not_compiled_is_told(
    monkeypatch: pytest.MonkeyPatch, check: RecordCheck | None
) -> None:
    monkeypatch.setattr(record_bounds, "COMPILED", check)
    told = [finding for finding in version_findings() if "record.validation" in finding.text]
    assert len(told) == (check is None)


def test_versions_are_told_and_every_codec_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_bounds, "COMPILED", IN_PYTHON)
    found = list(version_findings())
    assert worst(found) == []
    assert f"Python {sys.version_info[0]}." in found[0].text
    monkeypatch.setattr(doctor_machine, "decompress", lambda _codec, _data, _size: b"other")
    assert (Severity.PROBLEM, "codec zstd does not work") in worst(version_findings())


@pytest.mark.parametrize("is_root", [False, True])
def test_broker_of_root_is_warned_of(monkeypatch: pytest.MonkeyPatch, is_root: bool) -> None:
    monkeypatch.setattr(doctor_machine, "is_root", lambda: is_root)
    assert [finding.level for finding in user_findings()] == [Severity.WARNING] * is_root


def test_doctor_of_a_new_directory_finds_no_problem_and_makes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["doctor", "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]) == 0
    out, err = capsys.readouterr()
    assert "no broker is running on" in out
    assert "does not exist yet" in out
    assert err.startswith("0 problems, ")
    assert not (tmp_path / "data").exists()


def test_doctor_of_a_directory_in_one_that_is_missing_finds_what_serve_will_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data_dir = tmp_path / "missing" / "data"
    assert run(["doctor", "--data-dir", str(data_dir), "--listen", "127.0.0.1:0", "--json"]) == FAILED
    [found] = [each for each in findings_of(capsys.readouterr().out) if each["level"] == "problem"]
    assert found["text"] == f"{data_dir.parent} does not exist, and `ottla serve` makes no directory above its own"
    assert f"mkdir -p {data_dir.parent}" in found["advice"]


def test_doctor_finds_the_lost_tree_of_several_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data_dir = tmp_path / "data"
    make_data_directory(str(data_dir), 0)
    (data_dir / "processes").mkdir()
    properties = data_dir / "meta.properties"
    properties.write_text(properties.read_text() + "cluster.id=AAAACAAAAAAAAAAAAAAABQ\nottla.tree=processes\n")
    assert run(["doctor", "--data-dir", str(data_dir), "--listen", "127.0.0.1:0", "--json"]) == FAILED
    texts = [each["text"] for each in findings_of(capsys.readouterr().out)]
    assert f"tree file {data_dir}/tree.sqlite: is missing" in texts


def test_doctor_finds_what_is_wrong_with_a_stopped_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data_dir = tmp_path / "data"
    make_data_directory(str(data_dir), 3)
    partition = data_dir / "orders-0"
    partition.mkdir()
    (partition / f"{0:020d}.log").write_bytes(b"x")
    (data_dir / "orders-0.20260301T000000Z.damaged").mkdir()
    arguments = ["doctor", "--data-dir", str(data_dir), "--listen", "127.0.0.1:0", "--json"]
    assert run(arguments) == FAILED
    [node] = [each for each in findings_of(capsys.readouterr().out) if each["level"] == "problem"]
    assert node["text"] == f"{data_dir} belongs to node.id 3, this broker has 0"
    assert run([*arguments, "--set", "node.id=3"]) == FAILED
    found = findings_of(capsys.readouterr().out)
    assert "partition.metadata is missing or damaged: orders-0" in [each["text"] for each in found]
    assert [each for each in found if each["text"].startswith("set aside by repair")]
    assert [each for each in found if "not stopped cleanly" in each["text"]]


def test_doctor_names_what_looks_for_damage_in_a_directory_that_was_stopped_cleanly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_data_directory(str(tmp_path / "data"), 0)
    assert run(["doctor", "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]) == 0
    assert f"`ottla log verify --deep {tmp_path / 'data'}` checks" in capsys.readouterr().out


def test_doctor_reports_an_unfinished_change_of_the_number_of_processes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_data_directory(str(tmp_path / "data"), 0)
    (tmp_path / "data" / "processes").mkdir()
    (tmp_path / "data" / "processes" / "resize.json").touch()
    assert run(["doctor", "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--json"]) == FAILED
    [found] = [each for each in findings_of(capsys.readouterr().out) if each["level"] == "problem"]
    assert "was interrupted, and no broker may start" in str(found["text"])
    assert f"start `ottla serve --data-dir {tmp_path / 'data'}` once" in str(found["advice"])


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        (".restoring", "", "`ottla restore BACKUP --data-dir"),
        ("meta.properties", "version=1\nnode.id=0\nottla.format=99\n", "has format 99, this broker reads format 1"),
    ],
)
def test_doctor_judges_the_owner_of_a_directory_as_serve_does(
    name: str, content: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data_dir = tmp_path / "data"
    make_data_directory(str(data_dir), 0)
    (data_dir / name).write_text(content)
    assert run(["doctor", "--data-dir", str(data_dir), "--listen", "127.0.0.1:0"]) == FAILED
    assert told in capsys.readouterr().out


def test_doctor_of_a_backup_names_the_restore(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / f"{0:020d}.log").write_bytes(b"")
    (tmp_path / "backup.json").write_text("{}")
    assert run(["doctor", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"]) == FAILED
    assert f"`ottla restore {tmp_path} --data-dir NEW`" in capsys.readouterr().out


def test_doctor_of_apache_kafkas_directory_names_the_import(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=a\n")
    assert run(["doctor", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"]) == FAILED
    assert f"ottla log import {tmp_path} --data-dir NEW" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("advertised", "told"),
    [
        ("PLAINTEXT://no-such-host.invalid:9092", "a name that this machine cannot resolve"),
        ("PLAINTEXT://127.0.0.1:9092", "which on other machines is themselves"),
    ],
)
def test_doctor_judges_the_advertised_address(
    tmp_path: Path, advertised: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["doctor", "--data-dir", str(tmp_path / "d"), "--listen", ":0", "--set"]
    run([*arguments, f"advertised.listeners={advertised}", "--insecure-listen"])
    out = capsys.readouterr().out
    assert told in out
    assert "anyone who reaches it may do everything" in out


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--listen", ":0"], "refused to listen on every interface"),
        (["--listen", "127.0.0.1:0", "--admin-listen", ":0"], "refused to serve metrics on every interface"),
        (
            ["--listen", "127.0.0.1:0", "--set", "schema.registry.listeners=http://10.0.0.1:8081"],
            "refused to serve schemas on 10.0.0.1",
        ),
        (["--listen", "127.0.0.1:{port}", "--admin-listen", "127.0.0.1:{port}"], "cannot listen on 127.0.0.1:{port}"),
        (
            ["--listen", "127.0.0.1:0", "--set", "schema.registry.listeners=http://127.0.0.1:{port}"],
            "127.0.0.1:{port} is free, for schemas",
        ),
    ],
)
def test_doctor_judges_the_addresses_as_serve_does(
    tmp_path: Path, flags: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    run(["doctor", "--data-dir", str(tmp_path / "d"), *(flag.format(port=port) for flag in flags)])
    assert told.format(port=port) in capsys.readouterr().out


def test_doctor_tells_every_bad_setting_and_looks_at_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTTLA_LOG_SEGMENT_BYTES", "1GB")
    bad = ["--set", "num.partitions=many", "--set", "nonsense", "--set", "log.retention.ms=soon", "--listen", "nowhere"]
    assert run(["doctor", "--data-dir", str(tmp_path / "data"), "--json", *bad]) == FAILED
    out, err = capsys.readouterr()
    problems = [each["text"] for each in findings_of(out) if each["level"] == "problem"]
    for told in ("num.partitions", "'nonsense' has no '='", "log.retention.ms", "log.segment.bytes", "port is missing"):
        assert [text for text in problems if told in text], told
    assert len(problems) == 5
    assert [each for each in findings_of(out) if "a flush takes" in each["text"]]
    assert err.startswith("5 problems, ")


def test_doctor_leaves_a_directory_of_others_alone_and_advises_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "python3-1").mkdir()
    (tmp_path / ".lock").write_text("theirs")
    (tmp_path / "passwd").write_text("")
    before = tmp_path.stat().st_mtime_ns
    assert run(["doctor", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"]) == FAILED
    out = capsys.readouterr().out
    assert "is not a data directory" in out
    assert "choose another --data-dir" in out
    assert "chmod" not in out
    assert "meta.properties" not in out
    assert tmp_path.stat().st_mtime_ns == before
    assert (tmp_path / ".lock").read_text() == "theirs"


def test_doctor_ends_with_its_summary_when_the_directory_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_disk: PosixDisk, path: str) -> list[str]:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(PosixDisk, "list_directory", refuse)
    assert run(["doctor", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"]) == FAILED
    out, err = capsys.readouterr()
    assert f"{tmp_path} cannot be read: " in out
    assert err.startswith("1 problem, ")


def test_doctor_with_a_wrong_file_or_flag_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--config", str(tmp_path / "none.properties")]) == FAILED
    assert "cannot read" in capsys.readouterr().out
    assert run(["doctor", "--listen", "nowhere"]) == FAILED
    assert "the port is missing" in capsys.readouterr().out
