"""What a driver pickles for its workers, unpickled by a Python that has Spark and lacks Ottla, or what that needs."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark import cloudpickle
from pyspark.worker_util import pickleSer

from ottla.spark.lake.rows import RowShape
from ottla.spark.lake.target import parse_target
from ottla.spark.lake.tasks import TaskJob, run_ranges
from ottla.spark.options.connection import Connection
from ottla.spark.options.read_options import parse_read_options
from ottla.spark.options.write_options import WriteOptions
from ottla.spark.sink.at_least_once import BatchSink
from ottla.spark.worker_import import advise_workers, advised

SINK = BatchSink(WriteOptions(Connection("localhost:9092"), "clicks"))


def planned() -> Callable[[], tuple[object, type]]:
    """As PySpark's planners make it: a function of their own around our sink, which names pyarrow too."""

    def write() -> tuple[object, type]:
        return SINK, pa.RecordBatch

    write.__module__ = "pyspark.sql.worker.write_into_data_source"
    return write


@pytest.fixture
def pickled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A command for a worker, in a file."""
    monkeypatch.setattr(pickleSer, "dumps", pickleSer.dumps)
    monkeypatch.delattr(pickleSer, "advises", raising=False)
    advise_workers()
    advise_workers()
    path = tmp_path / "command"
    path.write_bytes(pickleSer.dumps((planned(), "binary")))  # type: ignore[no-untyped-call]
    monkeypatch.delattr(pickleSer, "advises")
    return path


def test_a_command_is_unpickled_in_a_worker_that_has_everything(pickled: Path) -> None:
    write, kind = cloudpickle.loads(pickled.read_bytes())
    sink, batch = write()
    assert isinstance(sink, BatchSink)
    assert batch is pa.RecordBatch
    assert kind == "binary"


def test_other_values_are_pickled_as_ever(pickled: Path) -> None:
    assert pickleSer.dumps(("a", 1)) == cloudpickle.dumps(("a", 1))  # type: ignore[no-untyped-call]


def test_a_worker_without_any_package_says_how_to_ship_them(pickled: Path, tmp_path: Path) -> None:
    # As on a worker: Spark's Python files, no site-packages.
    spark = tmp_path / "pyspark.zip"
    root = Path(pyspark.__path__[0])
    with zipfile.ZipFile(spark, "w") as packed:
        packed.writestr("pyspark/__init__.py", "")
        for file in root.glob("cloudpickle/*.py"):
            packed.writestr(f"pyspark/{file.relative_to(root)}", file.read_text())
    program = f"import sys; sys.path.insert(0, {str(spark)!r}); {unpickle(pickled)}"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"]},
        check=False,
    )
    assert done.returncode == 1
    told = done.stderr.splitlines()[-1]
    assert told.startswith("ModuleNotFoundError: this worker has no Python package '"), done.stderr
    for word in ("--archives", "spark.executorEnv.PYTHONPATH", "Ottla with its extra 'spark'", "addPyFile"):
        assert word in told


@pytest.fixture
def load(tmp_path: Path) -> Path:
    """What the tasks of a load into a Delta table run, in a file."""
    options = parse_read_options({"kafka.bootstrap.servers": "h:9092", "subscribe": "clicks"}, is_stream=False)
    job = TaskJob(options, RowShape(), parse_target("s3://lake/clicks", {}, {}), ("topic",), {})
    path = tmp_path / "load"
    path.write_bytes(cloudpickle.dumps(advised(partial(run_ranges, job))))  # type: ignore[no-untyped-call]
    return path


@pytest.mark.parametrize("command", ["pickled", "load"])
@pytest.mark.parametrize("missing", ["ottla", "numpy", "pyarrow"])
def test_the_package_that_is_missing_is_named(request: pytest.FixtureRequest, command: str, missing: str) -> None:
    path: Path = request.getfixturevalue(command)
    program = f"import sys; sys.modules[{missing!r}] = None; {unpickle(path)}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert f"this worker has no Python package '{missing}'" in done.stderr


def test_the_tasks_of_a_load_need_no_library_of_tables(load: Path) -> None:
    absent = "import sys; sys.modules.update(deltalake=None, pyiceberg=None)"
    program = f"{absent}; import pickle; run = pickle.loads(open({str(load)!r}, 'rb').read()); print(list(run([])))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def unpickle(path: Path) -> str:
    return f"import pickle; pickle.loads(open({str(path)!r}, 'rb').read())"
