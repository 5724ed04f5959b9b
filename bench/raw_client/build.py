"""Compiles the raw client at its first use."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).parent
BUILD_DIR: Final = Path(__file__).parents[1] / "build"
FLAGS: Final = ("-O2", "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra")


class NoRawClient(RuntimeError):
    """The raw client cannot be built here; the text says why and what to do."""


def build_raw_client() -> Path:
    """The path of the compiled client.  Its name carries a digest of the sources, so a stale one is never run."""
    sources = sorted(SOURCES.glob("*.[ch]"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources) + " ".join(FLAGS).encode())
    binary = BUILD_DIR / f"raw_client-{digest.hexdigest()[:12]}"
    if binary.exists():
        return binary
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise NoRawClient("no C compiler: install one (Debian: apt install gcc) or name it in $CC")
    BUILD_DIR.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD_DIR) as scratch:
        target = Path(scratch) / "raw_client"
        command = [compiler, *FLAGS, "-o", str(target), *(str(path) for path in sources if path.suffix == ".c")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise NoRawClient(f"{compiler} could not compile {SOURCES}:\n{done.stderr[-2000:]}")
        target.rename(binary)
    return binary
