"""Runs the steps of a page in one namespace; a record separator precedes the output of each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

# A verb uses the page's broker unless it names one, or a ZooKeeper that knows the brokers.
_OTTLA = """\
set -o pipefail
ottla() {
  case " $* " in
    *" -b "*|*" --bootstrap-server "*|*" --zookeeper "*|*" --source "*|*" --help "*) "$PAGE_PYTHON" -m ottla "$@" ;;
    *) "$PAGE_PYTHON" -m ottla "$@" --bootstrap-server "$PAGE_BOOTSTRAP" ;;
  esac
}
"""


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
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


main()
