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
TLS_FLAGS: Final = ("-DWITH_TLS", "-lssl", "-lcrypto")


class NoRawClient(RuntimeError):
    """The raw client cannot be built here; the text says why and what to do."""


def build_raw_client(*, with_tls: bool = False) -> Path:
    """The path of the compiled client.  Its name carries a digest of the sources, so a stale one is never run."""
    flags = (*FLAGS, *TLS_FLAGS) if with_tls else FLAGS
    sources = sorted(SOURCES.glob("*.[ch]"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources) + " ".join(flags).encode())
    binary = BUILD_DIR / f"raw_client-{digest.hexdigest()[:12]}"
    if binary.exists():
        return binary
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise NoRawClient("no C compiler: install one (Debian: apt install gcc) or name it in $CC")
    BUILD_DIR.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD_DIR) as scratch:
        target = Path(scratch) / "raw_client"
        # Libraries follow the sources that need them.
        command = [compiler, "-o", str(target), *(str(path) for path in sources if path.suffix == ".c"), *flags]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0 and "openssl/" in done.stderr:
            raise NoRawClient("no headers of OpenSSL: install them (Debian: apt install libssl-dev)")
        if done.returncode != 0:
            raise NoRawClient(f"{compiler} could not compile {SOURCES}:\n{done.stderr[-2000:]}")
        target.rename(binary)
    return binary
