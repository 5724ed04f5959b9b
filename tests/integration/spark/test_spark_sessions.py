"""Sessions as programs start them, each in a separate process: by spark-submit, without activation, quietly."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyspark
import pytest

from ottla.testing import ControlledBroker

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SUBMIT: Final = Path(pyspark.__path__[0], "bin", "spark-submit")
ENDS_WITHIN_S: Final = 480

# A session that the user created, in an environment that is not activated; the source is registered by another thread.
REGISTERED: Final = """
import sys, threading
from pyspark.sql import SparkSession
import ottla.spark

bootstrap, topic = sys.argv[1:]
at = {"kafka.bootstrap.servers": bootstrap}
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()


def in_a_thread(work):
    failed = []

    def run():
        try:
            work()
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def write(session):
    ottla.spark.register(session)
    rows = session.range(10).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("ottla").options(**at, topic=topic).mode("append").save()


in_a_thread(lambda: write(spark))
other = spark.newSession()
in_a_thread(lambda: write(other))
third = spark.newSession()
ottla.spark.register(third)
for session in (spark, other, third):
    print("read", session.read.format("ottla").options(**at, subscribe=topic).load().count())

# Another thread's session is this one, with the settings that it has.
spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
spark.conf.set("spark.sql.shuffle.partitions", "17")
in_a_thread(lambda: print("again", ottla.spark.session().range(3).count()))
print(spark.conf.get("spark.sql.session.timeZone"), spark.conf.get("spark.sql.shuffle.partitions"))
"""

SUBMITTED: Final = """
import sys
import ottla.spark

spark = ottla.spark.session()
context = spark.sparkContext
print("master", context.master)
print("name", context.appName)
print("partitions", spark.conf.get("spark.sql.shuffle.partitions"))
print("zone", spark.conf.get("spark.sql.session.timeZone"))
at = {"kafka.bootstrap.servers": sys.argv[1], "subscribe": sys.argv[2]}
print("read", spark.read.format("ottla").options(**at).load().count())
"""

QUIET: Final = """
import shutil, sys, time
from pyspark import InheritableThread
from pyspark.sql import SparkSession
import ottla.spark

bootstrap, topic = sys.argv[1:]
at = {"kafka.bootstrap.servers": bootstrap}
spark = ottla.spark.session(master="local[2]")
rows = spark.range(0, 400_000, 1, 2).selectExpr("repeat('x', 100) AS value")
rows.write.format("ottla").options(**at, topic=topic).mode("append").save()
topics = spark.read.format("ottla").options(**at, subscribe=topic, minPartitions="8").load()
print("took", len(topics.take(1)))
# One task fails, and the other is killed in the middle of its rows.
rows = spark.range(0, 4_000_000, 1, 2).selectExpr("'x' AS value", "IF(id = 10, 99, 0) AS partition")
try:
    rows.write.format("ottla").options(**at, topic=topic).mode("append").save()
except Exception as error:
    print("failed", "'partition' is 99" in str(error))
# A query that cannot be: Spark would log the error with a trace of Java, besides raising it.
try:
    topics.selectExpr("no_such_column")
except Exception as error:
    print("refused", "no_such_column" in str(error))
# A stream is stopped in the middle of a write: it reads what it writes, so it never rests.
stream = spark.readStream.format("ottla").options(**at, subscribe=topic, startingOffsets="earliest").load()
writer = stream.select("value").writeStream.format("ottla").options(**at, topic=topic)
query = writer.option("checkpointLocation", "checkpoint").start()
while not query.recentProgress:
    assert query.exception() is None
    time.sleep(0.1)
query.stop()
shutil.rmtree("checkpoint")

def endless():
    ottla.spark.register(spark)
    spark.sparkContext.setJobGroup("endless", "is cancelled")
    rows = spark.range(0, 1 << 40, 1, 2).selectExpr("'x' AS value")
    try:
        rows.write.format("ottla").options(**at, topic=topic).mode("append").save()
    except Exception as error:
        print("cancelled", "cancelled" in str(error) or error)


thread = InheritableThread(target=endless)
thread.start()
stages = spark.sparkContext.statusTracker()
while not any(info and info.numActiveTasks for info in map(stages.getStageInfo, stages.getActiveStageIds())):
    assert thread.is_alive()
    time.sleep(0.1)
spark.sparkContext.cancelJobGroup("endless")
thread.join()
spark.stop()
# A session without a call that registers the source: Spark finds it automatically.
plain = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print("found", len(plain.read.format("ottla").options(**at, subscribe=topic).load().take(1)))
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[ControlledBroker]:
    with ControlledBroker() as broker:
        yield broker


@pytest.fixture
def topic(broker: ControlledBroker) -> Iterator[str]:
    with broker.namespace() as namespace:
        yield namespace.topic("orders", partitions=2)


def environment(directory: Path, **more: str) -> dict[str, str]:
    """A user's environment: no setting for Spark."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK", "PYTHON"))}
    return {**kept, "TMPDIR": str(directory), "SPARK_LOCAL_IP": "127.0.0.1", **more}


def run(
    command: list[str], program: str, broker: ControlledBroker, topic: str, directory: Path, **more: str
) -> subprocess.CompletedProcess[str]:
    path = directory / "program.py"
    path.write_text(program)
    work = directory / "work"
    work.mkdir()
    done = subprocess.run(
        [*command, str(path), broker.bootstrap, topic],
        cwd=work,
        env=environment(directory, **more),
        capture_output=True,
        text=True,
        timeout=ENDS_WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done


def test_register_works_in_any_thread_and_session_without_an_activated_environment(
    broker: ControlledBroker, topic: str, tmp_path: Path
) -> None:
    bare = tmp_path / "bin"
    bare.mkdir()
    # `python3` has neither this package nor what it needs.
    (bare / "python3").symlink_to(os.path.realpath(sys.executable))
    java = shutil.which("java")
    path = [str(bare), "/usr/bin", "/bin", *([str(Path(java).parent)] if java else [])]
    done = run([sys.executable], REGISTERED, broker, topic, tmp_path, PATH=os.pathsep.join(path))
    assert done.stdout.split("\n")[:-1] == [*["read 20"] * 3, "again 3", "Asia/Tokyo 17"]


def test_a_session_follows_spark_submit_and_plans_with_the_python_of_an_archive(
    broker: ControlledBroker, topic: str, tmp_path: Path
) -> None:
    archive = tmp_path / "environment.tar.gz"
    packed = tmp_path / "packed" / "bin"
    packed.mkdir(parents=True)
    (packed / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (packed / "python").chmod(0o755)
    shutil.make_archive(str(tmp_path / "environment"), "gztar", packed.parent)
    settings = ["--master", "local[1]", "--name", "nightly", "--conf", "spark.sql.shuffle.partitions=7"]
    done = run(
        [str(SUBMIT), *settings, "--archives", f"{archive}#environment"],
        SUBMITTED,
        broker,
        topic,
        tmp_path,
        PYSPARK_PYTHON="./environment/bin/python",
        PYSPARK_DRIVER_PYTHON=sys.executable,
    )
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert said == {"master": "local[1]", "name": "nightly", "partitions": "7", "zone": "UTC", "read": "0"}
    assert not (tmp_path / "work" / "environment").is_symlink()


def test_a_session_is_quiet_and_leaves_nothing(broker: ControlledBroker, topic: str, tmp_path: Path) -> None:
    done = run([sys.executable], QUIET, broker, topic, tmp_path)
    assert done.stdout.splitlines() == ["took 1", "failed True", "refused True", "cancelled True", "found 1"]
    # Java's own warning cannot be switched off.
    told = [line for line in done.stderr.splitlines() if not line.startswith("WARNING: Using incubator modules")]
    assert told == []
    assert list((tmp_path / "work").iterdir()) == []
    assert [path.name for path in tmp_path.iterdir() if "warehouse" in path.name] == []
