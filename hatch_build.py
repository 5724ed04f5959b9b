"""Compiles the parts of the package that have a compiled form, where there is a C compiler; all work without it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = "ottla/spark/arrow"
# The library of each; not record_fields.so: Python would import it instead of record_fields.py.
LIBRARIES = {"record_fields.c": "librecord_fields.so", "record_rows.c": "librecord_rows.so"}
FLAGS = ("-O2", "-std=c11", "-shared", "-fPIC", "-Wall", "-Wextra")


class CompileHook(BuildHookInterface[Any]):
    """`OTTLA_PURE_PYTHON=1` builds the wheel for every platform, without anything compiled."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        sources = Path(self.root, "src", FOLDER)
        if version == "editable":
            for source, library in LIBRARIES.items():
                in_place = sources / library
                # Python finds it beside its source; a stale one must not stay.
                in_place.unlink(missing_ok=True)
                if _is_wanted() and self._compile(sources / source, in_place.with_suffix(f".{os.getpid()}")):
                    in_place.with_suffix(f".{os.getpid()}").rename(in_place)
            return
        self._scratch = tempfile.mkdtemp(prefix="ottla-build-")
        for source, library in LIBRARIES.items():
            compiled = Path(self._scratch, library)
            if _is_wanted() and self._compile(sources / source, compiled):
                build_data["pure_python"] = False
                build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
                build_data["force_include"][str(compiled)] = f"{FOLDER}/{library}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _compile(self, source: Path, library: Path) -> bool:
        compiler = shutil.which(os.environ.get("CC", "cc"))
        if compiler is None:
            self.app.display_warning("no C compiler: Spark reads and writes more slowly")
            return False
        done = subprocess.run([compiler, *FLAGS, "-o", library, source], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            self.app.display_warning(f"{compiler} could not compile {source.name}, which is left out:\n{done.stderr}")
        return done.returncode == 0


def _is_wanted() -> bool:
    return os.environ.get("OTTLA_PURE_PYTHON") != "1"
