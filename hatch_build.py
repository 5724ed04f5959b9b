"""Compiles the parts of the package that have a compiled form, where there is a C compiler; all work without it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Compiled(NamedTuple):
    """A source and what is made of it, below `src`."""

    source: str
    target: str
    # Whether it is a module of Python's stable interface, which needs Python's headers.
    is_module: bool = False
    without_it: str = "Spark reads and writes more slowly"


COMPILED = (
    # Not record_fields.so: Python would import it instead of record_fields.py.
    Compiled("ottla/spark/arrow/record_fields.c", "ottla/spark/arrow/librecord_fields.so"),
    Compiled("ottla/spark/arrow/record_rows.c", "ottla/spark/arrow/librecord_rows.so"),
    Compiled(
        "ottla/records/compiled_bounds.c",
        "ottla/records/compiled_bounds.abi3.so",
        is_module=True,
        without_it="the broker does not check the records of the batches that it takes (record.validation)",
    ),
)
FLAGS = ("-O2", "-std=c11", "-shared", "-fPIC", "-Wall", "-Wextra")


class CompileHook(BuildHookInterface[Any]):
    """`OTTLA_PURE_PYTHON=1` builds the wheel for every platform, without anything compiled."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            for each in COMPILED:
                in_place = Path(self.root, "src", each.target)
                # Python finds it beside its source; a stale one must not stay.
                in_place.unlink(missing_ok=True)
                made = in_place.with_suffix(f".{os.getpid()}")
                if _is_wanted() and self._compile(each, made):
                    made.rename(in_place)
            return
        self._scratch = tempfile.mkdtemp(prefix="ottla-build-")
        platform = this_platform().replace("-", "_").replace(".", "_")
        for each in COMPILED:
            made = Path(self._scratch, Path(each.target).name)
            if _is_wanted() and self._compile(each, made):
                build_data["pure_python"] = False
                is_for_cpython = each.is_module or build_data.get("tag", "").startswith("cp")
                build_data["tag"] = f"{'cp311-abi3' if is_for_cpython else 'py3-none'}-{platform}"
                build_data["force_include"][str(made)] = each.target

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _compile(self, wanted: Compiled, target: Path) -> bool:
        compiler = shutil.which(os.environ.get("CC", "cc"))
        if compiler is None:
            self.app.display_warning(f"no C compiler: {wanted.without_it}")
            return False
        source = Path(self.root, "src", wanted.source)
        flags = [*FLAGS, *target_flags(this_platform()), *(module_flags() if wanted.is_module else ())]
        done = subprocess.run([compiler, *flags, "-o", target, source], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            self.app.display_warning(
                f"{compiler} could not compile {source.name}, which is left out ({wanted.without_it}):\n{done.stderr}"
            )
        return done.returncode == 0


def this_platform() -> str:
    return platform_of_wheel(sysconfig.get_platform(), is_32_bit=sys.maxsize < 2**32)


def platform_of_wheel(platform: str, *, is_32_bit: bool) -> str:
    """What installers look for, which is not always what Python reports: of macOS from 11 on they know major versions
    alone, and a Python of 32 bits reports the kernel's architecture."""
    if platform.startswith("macosx-"):
        _, version, architecture = platform.split("-")
        major = version.split(".")[0]
        return f"macosx-{major}.0-{architecture}" if int(major) >= 11 else platform
    of_32_bit = {"linux-x86_64": "linux-i686", "linux-aarch64": "linux-armv7l"}
    return of_32_bit.get(platform, platform) if is_32_bit else platform


def target_flags(platform: str) -> list[str]:
    """On macOS the version and architectures of the wheel's tag; a compiler's defaults are those of its machine."""
    if platform.startswith("linux-"):
        # auditwheel recognises glibc or musl by the libraries that are needed, also where none of their functions is.
        return ["-Wl,--no-as-needed"]
    if not platform.startswith("macosx-"):
        return []
    _, version, architecture = platform.split("-")
    architectures = ("arm64", "x86_64") if architecture == "universal2" else (architecture,)
    return [f"-mmacosx-version-min={version}", *(part for each in architectures for part in ("-arch", each))]


def module_flags() -> list[str]:
    """Python's own names are found when the module is loaded."""
    lookup = ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
    return ["-I", sysconfig.get_path("include"), *lookup]


def _is_wanted() -> bool:
    return os.environ.get("OTTLA_PURE_PYTHON") != "1"
