"""What `ottla backup` refuses before it copies anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.exit_status import FAILED
from ottla.cli.log.stopped_directory import StoppedDirectory, make_data_directory
from ottla.cli.program import run
from ottla.maintenance.backup import Backup
from ottla.model.identifiers import TopicPartition


@pytest.mark.parametrize("content", [None, b"", b"SQLite format 3\0" + bytes(4096)], ids=["gone", "empty", "damaged"])
def test_backup_without_a_tree_is_refused_before_any_log_is_copied(
    content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data_dir = tmp_path / "data"
    make_data_directory(str(data_dir), 0)
    with StoppedDirectory(str(data_dir)):
        pass
    (data_dir / "orders-0").mkdir()
    (data_dir / "orders-0" / f"{0:020d}.log").write_bytes(b"")
    (data_dir / "tree.sqlite").unlink()
    if content is not None:
        (data_dir / "tree.sqlite").write_bytes(content)
    copied: list[TopicPartition] = []
    monkeypatch.setattr(Backup, "copy_log", lambda _, partition: copied.append(partition))
    assert run(["backup", str(tmp_path / "backup"), "--data-dir", str(data_dir)]) == FAILED
    assert "tree.sqlite: " in capsys.readouterr().err
    assert copied == []
    assert not (tmp_path / "backup").exists()
