"""The workers' Python: this interpreter, with one directory more on its path."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from io import BufferedReader, BufferedRWPair
from pathlib import Path

import pyspark
import pytest

from ottla.spark.worker_python import quick_python, write_shim

SHOW = "import sys, shown; print(shown.PLACE, sys.executable, sys.argv[1:])"


@pytest.mark.parametrize("given", [None, "first"])
def test_shim_puts_its_packages_first_and_keeps_the_rest(tmp_path: Path, given: str | None) -> None:
    for place in ("a 'strange' folder", "first"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "shown.py").write_text(f"PLACE = {place!r}")
    (tmp_path / "first" / "other.py").write_text("")
    shim = write_shim(tmp_path / "python", tmp_path / "a 'strange' folder")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    program = SHOW
    if given is not None:
        environment["PYTHONPATH"] = str(tmp_path / given)
        program = f"import other; {SHOW}"
    command = [str(shim), "-c", program, "two words", "$HOME"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == f"a 'strange' folder {sys.executable} ['two words', '$HOME']\n"


def test_quick_python_imports_the_installed_pyspark_although_another_is_first_on_the_path(tmp_path: Path) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text("raise ImportError('as from the zip file')")
    command = [quick_python(), "-c", "import pyspark, os; print(os.path.realpath(pyspark.__file__))"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == os.path.realpath(pyspark.__file__)
    assert quick_python() == quick_python()


def test_processes_share_the_quick_python_and_leave_no_folder_of_their_own(tmp_path: Path) -> None:
    program = (
        "import os; from ottla.spark.worker_python import quick_python; print(quick_python(), flush=True); os._exit(9)"
    )

    def found() -> str:
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        ran = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 9, ran.stderr
        return ran.stdout.strip()

    first = found()
    assert found() == first
    # Both ended as if they were killed.
    assert len(list((tmp_path / f"ottla-python-{os.getuid()}").iterdir())) == 1
    assert subprocess.run([first, "-c", "import pyspark"], check=False).returncode == 0


def test_folders_that_killed_processes_have_left_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    shared = tmp_path / f"ottla-python-{os.getuid()}"
    shared.mkdir(mode=0o700)
    for name in ("new-old", "new-of-now", "uninstalled", "installed"):
        (shared / name / "packages").mkdir(parents=True)
    os.utime(shared / "new-old", (0, 0))
    (shared / "uninstalled" / "packages" / "pyspark").symlink_to(tmp_path / "gone")
    (shared / "installed" / "packages" / "pyspark").symlink_to(tmp_path)
    home = Path(quick_python.__wrapped__()).parent
    assert {each.name for each in shared.iterdir()} == {"new-of-now", "installed", home.name}


def test_folder_of_one_process_is_removed_by_another_when_that_one_is_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / f"ottla-python-{os.getuid()}").touch()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for name in (f"of-{ended.pid}-x", f"of-{os.getpid()}-x", "other"):
        (tmp_path / f"ottla-python-{name}").mkdir()
    own = Path(quick_python.__wrapped__()).parent
    left = {each.name for each in tmp_path.iterdir() if each.is_dir()}
    assert left == {f"ottla-python-of-{os.getpid()}-x", "ottla-python-other", own.name}


def test_folder_that_others_may_write_to_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    shared = tmp_path / f"ottla-python-{os.getuid()}"
    shared.mkdir()
    shared.chmod(0o777)
    own = Path(quick_python.__wrapped__())
    assert own.parent.parent == tmp_path
    assert own.parent != shared
    assert list(shared.iterdir()) == []


def planner(place: socket.socket, **environment: str) -> subprocess.Popen[str]:
    host, port = place.getsockname()
    assert host == "127.0.0.1"
    where = {"PYTHON_WORKER_FACTORY_PORT": str(port), "PYTHON_WORKER_FACTORY_SECRET": "secret"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON_WORKER")}
    command = [quick_python(), "-m", "pyspark.sql.streaming.python_streaming_source_runner"]
    return subprocess.Popen(command, env={**kept, **where, **environment}, stderr=subprocess.PIPE, text=True)


def read_text(file: BufferedReader | BufferedRWPair) -> str:
    (size,) = struct.unpack("!i", file.read(4))
    return file.read(size).decode()


def test_a_planner_connects_before_it_imports_anything(tmp_path: Path) -> None:
    """Spark waits 10 s for it: here PySpark cannot be imported at all, and it has connected all the same."""
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['pyspark'] = None")
    with socket.create_server(("127.0.0.1", 0)) as place:
        process = planner(place, PYTHONPATH=str(tmp_path))
        connection, _ = place.accept()
        with connection, connection.makefile("rb") as file:
            assert read_text(file) == "secret"
        _, errors = process.communicate()
    assert "pyspark" in errors, "that was the failure"


def test_a_planner_is_pysparks_own_and_quiet_when_the_pipe_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as place:
        process = planner(place)
        connection, _ = place.accept()
        with connection, connection.makefile("rwb") as file:
            assert read_text(file) == "secret"
            file.write(struct.pack("!i", 2) + b"ok")
            file.flush()
            assert struct.unpack("!i", file.read(4)) == (process.pid,)
            # What it reads next is no version of Python: it reports that, to a closed pipe.
            file.write(struct.pack("!i", 3) + b"9.9")
            file.flush()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        _, errors = process.communicate()
    assert process.returncode != 0
    assert errors == ""
