"""`requirements.lock`: a version of each package of all extras, and the hashes of its files; `requirements-docs.lock`:
the same of what builds the site.

Each holds for all Pythons and platforms: markers choose.  `./dev lock` writes them with uv, in pip's form; what is
locked stays, unless pyproject.toml does not allow it any more or `--upgrade` is given.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).resolve().parents[1]
LOCK: Final = ROOT / "requirements.lock"
DOCS_LOCK: Final = ROOT / "requirements-docs.lock"
# What uv resolves for each.
_SOURCES: Final[dict[Path, tuple[str, ...]]] = {
    LOCK: ("--all-extras", "pyproject.toml"),
    DOCS_LOCK: ("--group", "docs"),
}

_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_CONTINUED: Final = re.compile(r"\\\n")


class LockedPackage(NamedTuple):
    """`sha256`: of each of its files: the source distribution, and the wheels of all platforms."""

    requirement: Requirement
    sha256: tuple[str, ...]

    @property
    def name(self) -> str:
        return canonicalize_name(self.requirement.name)

    @property
    def version(self) -> str:
        (pin,) = self.requirement.specifier
        assert pin.operator == "==", self.requirement
        return pin.version

    def is_for(self, environment: Mapping[str, str]) -> bool:
        """`environment`: values of markers that are not this Python's."""
        marker = self.requirement.marker
        return marker is None or marker.evaluate(dict(environment))


def locked_packages(text: str) -> list[LockedPackage]:
    """A package may be there several times, with markers that exclude each other."""
    return list(_packages(text))


def _packages(text: str) -> Iterator[LockedPackage]:
    for line in _CONTINUED.sub(" ", text).splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        requirement, *_ = line.split("--hash=", 1)
        yield LockedPackage(Requirement(requirement), tuple(_HASH.findall(line)))


def main(arguments: list[str]) -> int:
    """`arguments` are for uv."""
    if importlib.util.find_spec("uv") is None:
        # As where pip has an index that uv does not know.
        install_uv = shlex.join([sys.executable, "-m", "pip", "install", "uv"])
        sys.exit(f"lock: uv resolves the versions, and is not installed\nhint: {install_uv}")
    return max(_write(lock, sources, arguments) for lock, sources in _SOURCES.items())


def _write(lock: Path, sources: tuple[str, ...], arguments: list[str]) -> int:
    for_all = ["--universal", "--python-version", "3.11", "--generate-hashes"]
    written = ["--custom-compile-command", "./dev lock", "--output-file", lock.name, "--quiet"]
    compile_lock = [sys.executable, "-m", "uv", "pip", "compile", *for_all, *written, *arguments, *sources]
    return abs(subprocess.call(compile_lock, cwd=ROOT))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
