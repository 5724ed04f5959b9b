"""A standalone Spark cluster: a master and workers, each a process with its own directory, without this package.

A worker has Java, Spark and a Python without packages; no virtual environment, no PYTHONPATH, no home.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final

import pyspark

from ottla.spark.java_install import ensure_java
from tests.eventually import eventually

SPARK: Final = Path(pyspark.__path__[0])
MASTER: Final = "org.apache.spark.deploy.master.Master"
WORKER: Final = "org.apache.spark.deploy.worker.Worker"
EXECUTOR: Final = "CoarseGrainedExecutorBackend"
WITHIN_S: Final = 240.0
_STARTED: Final = re.compile(r"Starting Spark master at (spark://\S+)")
_SCALA_VERSION: Final = re.findall(r"spark-core_([\d.]+)-", " ".join(os.listdir(SPARK / "jars")))[0]
_REGISTERED: Final = "Successfully registered with master"


class StandaloneSpark:
    """with StandaloneSpark(tmp_path) as cluster:
    done = cluster.submit(program)
    """

    def __init__(self, directory: Path, workers_count: int = 2) -> None:
        self._directory = directory
        self._workers_count = workers_count
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._java = ensure_java()
        self.master_url = ""

    def __enter__(self) -> StandaloneSpark:
        self._make_home()
        try:
            self._start("master", MASTER, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            found = eventually(lambda: _STARTED.search(self._log("master")), within_s=WITHIN_S)
            assert found is not None
            self.master_url = found.group(1)
            names = [f"worker-{number}" for number in range(self._workers_count)]
            for name in names:
                work = ("--work-dir", str(self._directory / name / "work"), "--cores", "1", "--memory", "1g")
                self._start(name, WORKER, "--host", "127.0.0.1", "--webui-port", "0", *work, self.master_url)
            for name in names:
                eventually(lambda name=name: _REGISTERED in self._log(name), within_s=WITHIN_S)  # type: ignore[misc]
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            for child in children_of(process.pid):
                _kill(child)
            process.kill()
            process.wait()

    @property
    def logs(self) -> str:
        """The ends of all logs, for a test that failed."""
        return "\n".join(f"--- {name}\n{self._log(name)[-2000:]}" for name in self._processes)

    @property
    def used_executors(self) -> list[int]:
        """The process ids of executors that have run a task of this job: they have a Python worker.

        An executor that is still starting is unknown to the driver, so killing it would test nothing.
        """
        workers = [process.pid for name, process in self._processes.items() if name != "master"]
        executors = [child for worker in workers for child in children_of(worker) if EXECUTOR in _command_of(child)]
        return [executor for executor in executors if children_of(executor)]

    def submit(self, program: Path, *arguments: str, submit: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        """`spark-submit` in client mode with the test's Python; the caller reads its output, errors go to a file."""
        directory = self._directory / f"driver-{program.stem}"
        directory.mkdir(exist_ok=True)
        command = [str(SPARK / "bin" / "spark-submit"), "--master", self.master_url, "--deploy-mode", "client"]
        # Loopback only: the machine's name may lead elsewhere.
        settings = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m", "spark.ui.enabled": "false"}
        command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        environment = dict(os.environ)
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
        for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH", "SPARK_HOME"):
            environment.pop(name, None)
        self.errors = directory / "stderr"
        with self.errors.open("w") as errors:
            return subprocess.Popen(
                [*command, *submit, str(program), *arguments],
                cwd=directory,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def _make_home(self) -> None:
        """Spark's home, without the environment that it is installed in, and a Python without packages."""
        home = self._directory / "spark-home"
        home.mkdir()
        for part in ("bin", "jars", "python"):
            (home / part).symlink_to(SPARK / part)
        venv.create(self._directory / "python", with_pip=False)

    def _environment(self, directory: Path) -> Mapping[str, str]:
        return {
            "PATH": os.pathsep.join([str(self._directory / "python" / "bin"), "/usr/bin", "/bin"]),
            "JAVA_HOME": str(self._java.parent.parent),
            "SPARK_HOME": str(self._directory / "spark-home"),
            # The environment that Spark's scripts set, from the name of its jars.
            "SPARK_SCALA_VERSION": _SCALA_VERSION,
            "SPARK_LOCAL_DIRS": str(directory / "local"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "HOME": str(directory),
        }

    def _start(self, name: str, main: str, *arguments: str) -> None:
        directory = self._directory / name
        directory.mkdir()
        with (directory / "log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [str(self._java), "-Xmx256m", "-cp", f"{SPARK / 'jars'}/*", main, *arguments],
                cwd=directory,
                env=self._environment(directory),
                stdout=log,
                stderr=log,
            )

    def _log(self, name: str) -> str:
        return (self._directory / name / "log").read_text(errors="replace")


def children_of(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # pid (name) state ppid: the name may have spaces and brackets.
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(stat.parent.name))
    return found


def _command_of(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return ""


def _kill(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return
