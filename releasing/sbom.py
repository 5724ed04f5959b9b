"""The bill of materials of the package and its extras, as CycloneDX 1.6: python -m releasing.sbom > FILE

Versions and hashes are those of `requirements.lock`; licences, and what needs what, are in the metadata of the packages
that are installed here.  A release is the same package everywhere, but what it needs is not: the bill is of this Python
and platform.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ottla.model.version import __version__
from releasing.requirements_lock import LOCK, ROOT, LockedPackage, locked_packages

# The extras of users; `dev` is not among them.
NOT_SHIPPED: Final = frozenset({"dev"})
# A `License` field with more than this is the licence's text, not its name.
_LICENSE_NAME_CHARS_MAX: Final = 60

FindDistribution = Callable[[str], Distribution]
Document = dict[str, Any]


class Unlisted(Exception):
    """A package that is needed is not installed here, or not as it is locked."""


class Bill:
    """What the package needs, in the environment of `find`."""

    def __init__(self, project: Mapping[str, Any], lock: str, find: FindDistribution) -> None:
        """`project`: the table of pyproject.toml."""
        self._project = project
        self._find = find
        self._locked = {each.name: each for each in locked_packages(lock) if each.is_for({})}
        # By package, those that it needs; and the parts that need it: "" is the package without extras.
        self._needs: dict[str, set[str]] = {}
        self._parts: dict[str, set[str]] = {}
        self._direct: set[str] = set()
        self._visited: set[tuple[str, frozenset[str], str]] = set()
        extras = project["optional-dependencies"]
        for part, requirements in {"": project["dependencies"], **extras}.items():
            if part not in NOT_SHIPPED:
                self._direct |= self._add(requirements, part)

    def document(self, version: str) -> Document:
        name = self._project["name"]
        own = f"pkg:pypi/{name}@{version}"
        needed = {own: self._direct} | {self._reference(each): needs for each, needs in self._needs.items()}
        return {
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "version": 1,
            "metadata": {
                "component": {
                    "type": "application",
                    "bom-ref": own,
                    "name": name,
                    "version": version,
                    "licenses": [{"expression": self._project["license"]}],
                    "purl": own,
                }
            },
            "components": [self._component(each) for each in sorted(self._needs)],
            "dependencies": [
                {"ref": reference, "dependsOn": sorted(map(self._reference, needs))}
                for reference, needs in sorted(needed.items())
            ],
        }

    def _add(self, requirements: Iterable[str], part: str) -> set[str]:
        """What these need is needed by that part, too.  Returns their names."""
        names = set()
        for text in requirements:
            requirement = Requirement(text)
            name = canonicalize_name(requirement.name)
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
                continue
            if name == self._project["name"]:
                for extra in requirement.extras:
                    names |= self._add(self._project["optional-dependencies"][extra], part)
                continue
            names.add(name)
            self._parts.setdefault(name, set()).add(part)
            needs = self._needs.setdefault(name, set())
            visit = (name, frozenset(requirement.extras), part)
            if visit not in self._visited:
                self._visited.add(visit)
                needs |= self._add(_needed_by(self._distribution(name), requirement.extras), part)
        return names

    def _component(self, name: str) -> Document:
        parts = self._parts[name]
        package = self._package(name)
        return {
            "type": "library",
            "bom-ref": self._reference(name),
            "name": name,
            "version": package.version,
            "scope": "required" if "" in parts else "optional",
            "licenses": _licenses(self._distribution(name)),
            "purl": self._reference(name),
            "externalReferences": [
                {
                    "type": "distribution",
                    "url": f"https://pypi.org/project/{name}/{package.version}/",
                    "hashes": [{"alg": "SHA-256", "content": each} for each in package.sha256],
                }
            ],
            "properties": [{"name": "ottla:extra", "value": each} for each in sorted(parts - {""})],
        }

    def _reference(self, name: str) -> str:
        return f"pkg:pypi/{name}@{self._package(name).version}"

    def _package(self, name: str) -> LockedPackage:
        if name not in self._locked:
            raise Unlisted(f"{name} is not locked: ./dev lock")
        return self._locked[name]

    def _distribution(self, name: str) -> Distribution:
        try:
            found = self._find(name)
        except PackageNotFoundError:
            raise Unlisted(f"{name} is not installed here") from None
        if found.version != self._package(name).version:
            raise Unlisted(f"{name} is installed as {found.version}, and locked as {self._package(name).version}")
        return found


def _needed_by(package: Distribution, extras: Iterable[str]) -> Iterator[str]:
    """The requirements that hold here, without their markers."""
    for text in package.requires or ():
        requirement = Requirement(text)
        marker, requirement.marker = requirement.marker, None
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield str(requirement)


def _licenses(package: Distribution) -> list[Document]:
    """As the package declares it: by SPDX, else by a name."""
    metadata = package.metadata
    if "License-Expression" in metadata:
        return [{"expression": metadata["License-Expression"]}]
    name, *_ = metadata.get_all("License") or [""]
    if name and "\n" not in name and len(name) <= _LICENSE_NAME_CHARS_MAX:
        return [{"license": {"name": name}}]
    classifiers = (each.split(" :: ") for each in metadata.get_all("Classifier") or ())
    return [{"license": {"name": parts[-1]}} for parts in classifiers if parts[0] == "License"]


def main() -> int:
    project = tomllib.loads(Path(ROOT, "pyproject.toml").read_text(encoding="utf-8"))["project"]
    try:
        document = Bill(project, LOCK.read_text(encoding="utf-8"), distribution).document(__version__)
    except Unlisted as reason:
        sys.stderr.write(f"error: {reason}\n")
        return 1
    sys.stdout.write(json.dumps(document, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
