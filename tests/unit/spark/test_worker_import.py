"""What a driver pickles for its workers, unpickled by a Python that has Spark and lacks Ottla."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyspark
from pyspark import cloudpickle

from ottla.spark.options.connection import Connection
from ottla.spark.options.write_options import WriteOptions
from ottla.spark.sink.sinks import BatchSink

# Spark's own pickles: by value for what says so.
dumps: Callable[[object], bytes] = cloudpickle.dumps
SINK = BatchSink(WriteOptions(Connection("localhost:9092"), "clicks"))


def test_a_sink_is_made_anew_from_what_is_shipped() -> None:
    sink = cloudpickle.loads(dumps(SINK))
    assert isinstance(sink, BatchSink)
    assert sink.shipped() == SINK.shipped()


def test_a_worker_without_the_package_says_how_to_ship_it(tmp_path: Path) -> None:
    pickled = tmp_path / "sink"
    pickled.write_bytes(dumps(SINK))
    # As on a worker: Spark's Python files, no site-packages.
    spark = tmp_path / "pyspark.zip"
    root = Path(pyspark.__path__[0])
    with zipfile.ZipFile(spark, "w") as packed:
        for file in [root / "__init__.py", *root.glob("cloudpickle/*.py")]:
            content = "" if file.name == "__init__.py" and file.parent == root else file.read_text()
            packed.writestr(f"pyspark/{file.relative_to(root)}", content)
    program = f"import pickle; pickle.loads(open({str(pickled)!r}, 'rb').read())"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(spark)!r}); {program}"],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"]},
        check=False,
    )
    assert done.returncode == 1
    told = done.stderr.splitlines()[-1]
    assert told.startswith("ModuleNotFoundError: this worker has no Python package 'ottla'"), done.stderr
    assert "--archives" in told
    assert "addPyFile" in told
    assert sys.executable in told or "python" in told


def test_a_package_that_ottla_needs_is_named(tmp_path: Path) -> None:
    pickled = tmp_path / "sink"
    pickled.write_bytes(dumps(SINK))
    program = f"import pickle, sys; sys.modules['numpy'] = None; pickle.loads(open({str(pickled)!r}, 'rb').read())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "this worker has no Python package 'numpy'" in done.stderr
