"""Runs the steps of a page in one namespace; a record separator precedes the output of each.

With the file of a job as its argument it runs that page.  Without one it runs the jobs that it reads from standard
input, one after the other, and answers each with a line: the exit status of the page.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

# A verb uses the page's broker unless it names one, or a ZooKeeper that knows the brokers.
_OTTLA: Final = """\
set -o pipefail
ottla() {
  case " $* " in
    *" -b "*|*" --bootstrap-server "*|*" --zookeeper "*|*" --source "*|*" --help "*) "$PAGE_PYTHON" -m ottla "$@" ;;
    *) "$PAGE_PYTHON" -m ottla "$@" --bootstrap-server "$PAGE_BOOTSTRAP" ;;
  esac
}
"""
STDIN: Final = 0
STDOUT: Final = 1
STDERR: Final = 2


def run_page(job: Mapping[str, Any]) -> None:
    environment = {**os.environ, "PAGE_PYTHON": sys.executable, "PAGE_BOOTSTRAP": job["bootstrap"]}
    namespace: dict[str, object] = {"__name__": "__main__"}
    for step in job["steps"]:
        sys.stdout.write("\x1e")
        sys.stdout.flush()
        if step["language"] == "python":
            # At its line of the page, for tracebacks.
            code = "\n" * (step["line"] - 1) + step["code"]
            exec(compile(code, step["path"], "exec"), namespace)
        else:
            done = subprocess.run(["bash", "-euc", _OTTLA + step["code"]], env=environment, check=False)
            if done.returncode:
                raise SystemExit(f"{step['path']}:{step['line']}: exit status {done.returncode}")


def run_pages() -> None:
    """Each page starts in the current directory, which is empty then, and ends with its Spark session."""
    with os.fdopen(os.dup(STDIN)) as jobs, os.fdopen(os.dup(STDOUT), "w") as answers:
        with open(os.devnull) as nothing:
            # The programs of a page must not read the jobs.
            os.dup2(nothing.fileno(), STDIN)
        for line in jobs:
            job = json.loads(line)
            _write_to(job["output"], STDOUT)
            _write_to(job["errors"], STDERR)
            answers.write(f"{_status_of(job)}\n")
            answers.flush()


def _status_of(job: Mapping[str, Any]) -> int:
    try:
        try:
            run_page(job)
        finally:
            _end_page()
    except (Exception, SystemExit):  # noqa: BLE001 (the test reports it)
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def _end_page() -> None:
    if "pyspark" in sys.modules:
        from ottla.spark.jvm import default_session

        session = default_session()
        if session is not None:
            session.stop()
    for path in Path().iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _write_to(path: str, descriptor: int) -> None:
    with open(path, "wb") as file:
        os.dup2(file.fileno(), descriptor)


if __name__ == "__main__":
    if sys.argv[1:]:
        run_page(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    else:
        run_pages()
