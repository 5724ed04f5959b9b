"""Checks the package that is installed: python wheel_check.py

cibuildwheel runs it for each wheel and Python (pyproject.toml), so it needs nothing but the package.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Final

import ottla
from ottla.records.record_bounds import COMPILED

CHECKOUT: Final = Path(__file__).resolve().parents[1]
OTTLA: Final = Path(sys.executable).with_name("ottla")
ENDS_WITHIN_S: Final = 120
RECORD: Final = b"key:value\n"


def check_place() -> None:
    package = Path(ottla.__file__).resolve()
    assert not package.is_relative_to(CHECKOUT), f"{package} is the checkout's, not the wheel's"


def check_compiled() -> None:
    assert COMPILED is not None, "the check of records is not compiled"
    # By ctypes alone: the modules that use them need numpy and pyarrow, which are not on every platform.
    for name in ("record_fields", "record_rows"):
        library = ctypes.CDLL(str(Path(ottla.__file__).parent / "spark" / "arrow" / f"lib{name}.so"))
        assert getattr(library, f"ottla_{name}_interface")() > 0, name


def check_version() -> None:
    assert version("ottla") == ottla.__version__
    printed = subprocess.run([OTTLA, "--version"], capture_output=True, text=True, check=True, timeout=ENDS_WITHIN_S)
    assert ottla.__version__ in printed.stdout, printed.stdout


def check_broker(directory: str) -> None:
    """Two records go through a broker, one of them compressed."""
    serve: list[str | Path] = [OTTLA, "serve", "--data-dir", directory, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(serve, stderr=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stderr is not None
            events = (re.search(r"broker\.ready .*port=(\d+)", line) for line in broker.stderr)
            ready = next(filter(None, events), None)
            assert ready is not None, "the broker ended before it was ready"
            to_broker = ["--bootstrap-server", f"127.0.0.1:{ready[1]}"]
            for codec in ("none", "zstd"):
                subprocess.run(
                    [OTTLA, "produce", "checked", "--key-separator", ":", "--compression-type", codec, *to_broker],
                    input=RECORD,
                    check=True,
                    timeout=ENDS_WITHIN_S,
                )
            consumed = subprocess.run(
                [OTTLA, "consume", "checked", "--from-beginning", "--until-end", "--key-separator", ":", *to_broker],
                stdout=subprocess.PIPE,
                check=True,
                timeout=ENDS_WITHIN_S,
            )
            assert consumed.stdout == 2 * RECORD, consumed.stdout
        finally:
            broker.terminate()
            broker.communicate(timeout=ENDS_WITHIN_S)
    assert broker.returncode == 0, broker.returncode


def main() -> None:
    check_place()
    check_compiled()
    check_version()
    with tempfile.TemporaryDirectory() as directory:
        check_broker(directory)
    sys.stdout.write(f"ottla {ottla.__version__} on Python {sys.version.split()[0]}: installed, compiled, serves\n")


if __name__ == "__main__":
    main()
