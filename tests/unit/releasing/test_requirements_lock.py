"""The locks hold for all that pyproject.toml allows, and nothing of the machine that wrote them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from releasing.requirements_lock import DOCS_LOCK, LOCK, ROOT, locked_packages, main

PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LINUX: Final = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}
MACOS: Final = {"sys_platform": "darwin", "platform_system": "Darwin", "os_name": "posix"}
ENVIRONMENTS: Final = [
    pytest.param(
        {"python_version": version, "python_full_version": f"{version}.0", "platform_machine": machine} | platform,
        id=f"{version}-{platform['sys_platform']}-{machine}",
    )
    for version in ("3.11", "3.12", "3.13", "3.14")
    for platform, machine in ((LINUX, "x86_64"), (LINUX, "aarch64"), (MACOS, "arm64"))
]

SAMPLE: Final = f"""\
# This file was written by:
#    ./dev lock
alpha==1.0 \\
    --hash=sha256:{"a" * 64} \\
    --hash=sha256:{"b" * 64}
    # via
    #   ottla (pyproject.toml)
Beta.Gamma==2.0 ; python_full_version < '3.12' \\
    --hash=sha256:{"c" * 64}
    # via alpha
beta-gamma==3.0 ; python_full_version >= '3.12' \\
    --hash=sha256:{"d" * 64}
"""


def test_lock_without_uv_names_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"uv .* is not installed\nhint: .* -m pip install uv$"):
        main([])


def test_lock_is_read_with_markers_and_hashes() -> None:
    alpha, older, newer = locked_packages(SAMPLE)
    assert (alpha.name, alpha.version, alpha.sha256) == ("alpha", "1.0", ("a" * 64, "b" * 64))
    assert (older.name, older.version, newer.version) == ("beta-gamma", "2.0", "3.0")
    for each, is_older in (("3.11.9", True), ("3.12.0", False)):
        environment = {"python_full_version": each}
        assert [package.is_for(environment) for package in (alpha, older, newer)] == [True, is_older, not is_older]


def required_by_docs() -> Iterator[Requirement]:
    return map(Requirement, PROJECT["dependency-groups"]["docs"])


def required() -> Iterator[Requirement]:
    project = PROJECT["project"]
    extras = project["optional-dependencies"].values()
    for text in (
        *PROJECT["build-system"]["requires"],
        *project["dependencies"],
        *(each for one in extras for each in one),
    ):
        requirement = Requirement(text)
        if requirement.name != project["name"]:
            yield requirement


LOCKS: Final = [
    pytest.param(LOCK, required, id="extras"),
    pytest.param(DOCS_LOCK, required_by_docs, id="docs"),
]


@pytest.mark.parametrize(("lock", "requirements"), LOCKS)
@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_each_requirement_has_one_locked_version_in_its_range(
    environment: dict[str, str], lock: Path, requirements: Callable[[], Iterator[Requirement]]
) -> None:
    locked: dict[str, list[str]] = {}
    for package in locked_packages(lock.read_text(encoding="utf-8")):
        if package.is_for(environment):
            locked.setdefault(package.name, []).append(package.version)
    wrong = [
        f"{requirement}: {versions}"
        for requirement in requirements()
        if requirement.marker is None or requirement.marker.evaluate(dict(environment))
        for versions in [locked.get(canonicalize_name(requirement.name), [])]
        if len(versions) != 1 or not requirement.specifier.contains(versions[0])
    ]
    assert not wrong, "./dev lock"


@pytest.mark.parametrize(("lock", "requirements"), LOCKS)
def test_each_locked_package_has_hashes(lock: Path, requirements: Callable[[], Iterator[Requirement]]) -> None:
    packages = locked_packages(lock.read_text(encoding="utf-8"))
    assert len(packages) > len(list(requirements())) / 2
    assert [str(each.requirement) for each in packages if not each.sha256] == []


@pytest.mark.parametrize("lock", [LOCK, DOCS_LOCK], ids=["extras", "docs"])
def test_lock_names_no_index_and_no_path(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("--hash=sha256:")]
    assert not [line for line in lines if re.search(r"://|file:|--\w|\.\./|(?:^|\s)/", line)]
