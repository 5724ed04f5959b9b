"""Syncs of one process that take longer: a preloaded library delays them while a file requests it.

It costs the process nothing else, unlike a trace (injected_calls.py), so answers can be timed.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

_DIRECTORY_VARIABLE: Final = "OTTLA_TEST_SYNC_DELAYS"
_SOURCE: Final = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void delay(void) {
    char path[4096];
    long ms = 0;
    const char *directory = getenv("%(variable)s");
    if (!directory) return;
    snprintf(path, sizeof path, "%%s/%%d", directory, (int)getpid());
    FILE *file = fopen(path, "r");
    if (!file) return;
    if (fscanf(file, "%%ld", &ms) != 1) ms = 0;
    fclose(file);
    struct timespec left = {ms / 1000, ms %% 1000 * 1000000};
    while (nanosleep(&left, &left)) {}
}

#define DELAYED(name) int name(int fd) { \\
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, #name); delay(); return real(fd); }
DELAYED(fsync)
DELAYED(fdatasync)
DELAYED(syncfs)
"""


class DelayedSyncs:
    """`command` runs any other command with syncs that can be delayed.  Skips the test without a C compiler."""

    def __init__(self, directory: Path) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("needs a C compiler")
        self._directory = directory / "delays"
        self._directory.mkdir()
        source, library = directory / "delayed_syncs.c", directory / "delayed_syncs.so"
        source.write_text(_SOURCE % {"variable": _DIRECTORY_VARIABLE})
        subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
        self.command = ("env", f"LD_PRELOAD={library}", f"{_DIRECTORY_VARIABLE}={self._directory}")

    @contextmanager
    def delayed(self, pid: int, sync_ms: int) -> Iterator[None]:
        """Each sync of this process that starts within the context takes this much longer."""
        path = self._directory / str(pid)
        ready = path.with_suffix(".new")
        ready.write_text(str(sync_ms))
        ready.rename(path)
        try:
            yield
        finally:
            path.unlink()
