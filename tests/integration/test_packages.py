"""The source distribution and the wheel: what they hold, and an environment that has only them and what they name."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.tags import mac_platforms

from tests.architecture.source_tree import ROOT

pytest.importorskip("hatchling")

BUILT_WITHIN_S: Final = 300
COMPILED: Final = {
    "ottla/records/compiled_bounds.abi3.so",
    "ottla/spark/arrow/librecord_fields.so",
    "ottla/spark/arrow/librecord_rows.so",
}
# A part of what the tests alone are.
SDIST_BYTES_MAX: Final = 3 << 20
CLASSIFIER: Final = "Programming Language :: Python :: 3."
needs_compiler: Final = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def build(target: str, source: Path, into: Path, **environment: str) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(into)]
    subprocess.run(command, cwd=source, env=os.environ | environment, check=True, timeout=BUILT_WITHIN_S)
    (built,) = into.iterdir()
    return built


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", ROOT, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_source_distribution_has_no_tests_and_is_small(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        tops = {name.split("/")[1] for name in archive.getnames()}
    assert tops >= {"src", "docs", "examples", "pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "PKG-INFO"}
    assert not tops & {"tests", "bench", "dev", "dev_verbs.py"}
    assert sdist.stat().st_size < SDIST_BYTES_MAX


@needs_compiler
def test_wheel_has_what_is_compiled_for_all_pythons_of_the_platform(wheel: Path) -> None:
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert wheel.name.endswith(f"-cp311-abi3-{platform}.whl")
    assert {name for name in contents(wheel) if name.endswith(".so")} == COMPILED


def test_wheel_from_the_source_distribution_equals_that_from_the_checkout(
    sdist: Path, wheel: Path, tmp_path: Path
) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (source,) = (tmp_path / "unpacked").iterdir()
    rebuilt = build("wheel", source, tmp_path / "built")
    assert rebuilt.name == wheel.name
    found, expected = contents(rebuilt), contents(wheel)
    assert sorted(found) == sorted(expected)
    assert [name for name in expected if found[name] != expected[name]] == []


def test_pure_wheel_is_for_every_platform_and_lacks_only_what_is_compiled(wheel: Path, tmp_path: Path) -> None:
    pure = build("wheel", ROOT, tmp_path, OTTLA_PURE_PYTHON="1")
    assert pure.name.endswith("-py3-none-any.whl")
    assert contents(pure).keys() == contents(wheel).keys() - COMPILED


@needs_compiler
def test_installed_wheel_serves_with_nothing_but_the_packages_that_it_names(wheel: Path, tmp_path: Path) -> None:
    clean = tmp_path / "clean"
    venv.create(clean, with_pip=False)
    python = clean / "bin" / "python"
    (packages,) = clean.glob("lib/python*/site-packages")
    for each in needed_by("ottla"):
        link(each, packages)
    options = ["--quiet", "--disable-pip-version-check", "--no-compile", "--no-index"]
    install: list[str | Path] = [sys.executable, "-m", "pip", "--python", python, "install", *options, wheel]
    subprocess.run(install, check=True, timeout=BUILT_WITHIN_S)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    check: list[str | Path] = [python, "-W", "error", ROOT / "tests" / "wheel_check.py"]
    subprocess.run(check, cwd=tmp_path, env=environment, check=True, timeout=BUILT_WITHIN_S)


def test_wheels_are_tested_with_each_python_that_the_package_names() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    named = [each.removeprefix(CLASSIFIER) for each in settings["project"]["classifiers"] if CLASSIFIER in each]
    assert named
    assert {f"cp3{minor}-*" for minor in named} <= set(settings["tool"]["cibuildwheel"]["build"])


@pytest.mark.parametrize("version", [(10, 13), (11, 0), (14, 4), (26, 0)])
@pytest.mark.parametrize("architecture", ["arm64", "x86_64", "universal2"])
def test_wheel_for_macos_is_one_that_installers_look_for(version: tuple[int, int], architecture: str) -> None:
    hook = runpy.run_path(str(ROOT / "hatch_build.py"))
    platform: str = hook["platform_of_wheel"](f"macosx-{version[0]}.{version[1]}-{architecture}", is_32_bit=False)
    assert platform.replace("-", "_").replace(".", "_") in set(mac_platforms(version, architecture))


@pytest.mark.parametrize(
    ("reported", "is_32_bit", "expected"),
    [
        ("macosx-26-arm64", False, "macosx-26.0-arm64"),
        ("macosx-10.13-x86_64", False, "macosx-10.13-x86_64"),
        ("linux-x86_64", False, "linux-x86_64"),
        ("linux-x86_64", True, "linux-i686"),
        ("linux-aarch64", False, "linux-aarch64"),
        ("linux-aarch64", True, "linux-armv7l"),
        ("linux-armv7l", True, "linux-armv7l"),
    ],
)
def test_wheel_is_for_the_platform_of_its_python(reported: str, is_32_bit: bool, expected: str) -> None:
    hook = runpy.run_path(str(ROOT / "hatch_build.py"))
    assert hook["platform_of_wheel"](reported, is_32_bit=is_32_bit) == expected


@pytest.mark.parametrize(
    ("platform", "expected"),
    [
        ("linux-x86_64", "-Wl,--no-as-needed"),
        ("macosx-11.0-arm64", "-mmacosx-version-min=11.0 -arch arm64"),
        ("macosx-10.13-universal2", "-mmacosx-version-min=10.13 -arch arm64 -arch x86_64"),
    ],
)
def test_compiler_is_given_what_the_tag_of_a_wheel_says(platform: str, expected: str) -> None:
    hook = runpy.run_path(str(ROOT / "hatch_build.py"))
    assert hook["target_flags"](platform) == expected.split()


def needed_by(name: str) -> Iterator[Distribution]:
    """What a package needs without extras, and what that needs, as it is installed here."""
    waiting, seen = [name], {name}
    while waiting:
        for text in distribution(waiting.pop()).requires or ():
            requirement = Requirement(text)
            is_needed = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            if is_needed and requirement.name not in seen:
                seen.add(requirement.name)
                waiting.append(requirement.name)
                yield distribution(requirement.name)


def link(package: Distribution, packages: Path) -> None:
    """Programs, which are beside the packages' folder, are left out."""
    for top in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
        target = packages / top
        if not target.exists():
            target.symlink_to(Path(str(package.locate_file(top))))
