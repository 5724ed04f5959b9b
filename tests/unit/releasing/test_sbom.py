"""The bill of materials names each package that the package and its extras need, with version, licence and hashes."""

from __future__ import annotations

import tomllib
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from releasing.requirements_lock import LOCK, ROOT, locked_packages
from releasing.sbom import Bill, Unlisted

PROJECT: Final = {
    "name": "own",
    "license": "Apache-2.0",
    "dependencies": ["alpha>=1", "elsewhere>=1; sys_platform == 'nowhere'"],
    "optional-dependencies": {"more": ["beta[fast]>=1"], "most": ["own[more]", "delta"], "dev": ["missing"]},
}
METADATA: Final = {
    "alpha": "License-Expression: MIT\nRequires-Dist: gamma>=1\nRequires-Dist: none; extra == 'never'",
    "beta": "License: Apache 2.0\nRequires-Dist: gamma\nRequires-Dist: epsilon; extra == 'fast'",
    "gamma": "Classifier: License :: OSI Approved :: BSD License",
    "delta": "License: The text of\n        a licence\nClassifier: License :: OSI Approved :: MIT License",
    "epsilon": "License-Expression: MIT OR Apache-2.0\nRequires-Dist: beta[fast]",
}


def lock(**versions: str) -> str:
    return "".join(
        f"{name}=={version} \\\n    --hash=sha256:{number:064x}\n"
        for number, (name, version) in enumerate((dict.fromkeys(METADATA, "1.0") | versions).items())
    )


class Installed:
    def __init__(self, root: Path) -> None:
        self.root = root
        for name, text in METADATA.items():
            info = root / f"{name}-1.0.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\n{text}\n")

    def find(self, name: str) -> Distribution:
        info = self.root / f"{name}-1.0.dist-info"
        if not info.exists():
            raise PackageNotFoundError(name)
        return Distribution.at(info)


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    return Installed(tmp_path)


def components(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in document["components"]}


def test_packages_of_the_package_are_required_and_those_of_extras_optional(installed: Installed) -> None:
    found = components(Bill(PROJECT, lock(), installed.find).document("0.1.0"))
    assert {name: (each["scope"], [one["value"] for one in each["properties"]]) for name, each in found.items()} == {
        "alpha": ("required", []),
        "beta": ("optional", ["more", "most"]),
        "gamma": ("required", ["more", "most"]),
        "delta": ("optional", ["most"]),
        "epsilon": ("optional", ["more", "most"]),
    }


def test_each_component_has_its_version_licence_and_hashes(installed: Installed) -> None:
    found = components(Bill(PROJECT, lock(), installed.find).document("0.1.0"))
    assert {name: each["licenses"] for name, each in found.items()} == {
        "alpha": [{"expression": "MIT"}],
        "beta": [{"license": {"name": "Apache 2.0"}}],
        "gamma": [{"license": {"name": "BSD License"}}],
        "delta": [{"license": {"name": "MIT License"}}],
        "epsilon": [{"expression": "MIT OR Apache-2.0"}],
    }
    (source,) = found["beta"]["externalReferences"]
    assert source["hashes"] == [{"alg": "SHA-256", "content": f"{1:064x}"}]
    assert (found["beta"]["version"], found["beta"]["purl"]) == ("1.0", "pkg:pypi/beta@1.0")


def test_what_needs_what_is_listed(installed: Installed) -> None:
    document = Bill(PROJECT, lock(), installed.find).document("0.1.0")
    assert {each["ref"]: each["dependsOn"] for each in document["dependencies"]} == {
        "pkg:pypi/own@0.1.0": ["pkg:pypi/alpha@1.0", "pkg:pypi/beta@1.0", "pkg:pypi/delta@1.0"],
        "pkg:pypi/alpha@1.0": ["pkg:pypi/gamma@1.0"],
        "pkg:pypi/beta@1.0": ["pkg:pypi/epsilon@1.0", "pkg:pypi/gamma@1.0"],
        "pkg:pypi/gamma@1.0": [],
        "pkg:pypi/delta@1.0": [],
        "pkg:pypi/epsilon@1.0": ["pkg:pypi/beta@1.0"],
    }


def test_package_that_is_not_as_locked_is_refused(installed: Installed) -> None:
    with pytest.raises(Unlisted, match=r"gamma is installed as 1\.0, and locked as 2\.0"):
        Bill(PROJECT, lock(gamma="2.0"), installed.find)
    with pytest.raises(Unlisted, match="alpha is not locked"):
        Bill(PROJECT, "", installed.find)
    installed.root.joinpath("beta-1.0.dist-info").rename(installed.root / "gone")
    with pytest.raises(Unlisted, match="beta is not installed here"):
        Bill(PROJECT, lock(), installed.find)


def test_each_package_that_ottla_needs_is_in_its_bill() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    # No test needs AWS's signer.
    del project["optional-dependencies"]["msk"]
    text = LOCK.read_text(encoding="utf-8")
    # With the versions of this environment, which need not be the locked ones.
    of_here = "".join(
        f"{each.name}=={distribution(each.name).version} --hash=sha256:{each.sha256[0]}\n"
        for each in locked_packages(text)
        if each.is_for({}) and is_installed(each.name)
    )
    found = components(Bill(project, of_here, distribution).document("0.1.0"))
    extras = project["optional-dependencies"]
    for part, requirements in {"": project["dependencies"], **extras}.items():
        for requirement in map(Requirement, requirements):
            if part != "dev" and requirement.name != "ottla":
                component = found[canonicalize_name(requirement.name)]
                assert component["version"] == distribution(requirement.name).version
                assert component["licenses"], requirement
                assert component["externalReferences"][0]["hashes"], requirement
                assert part or component["scope"] == "required", requirement


def is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True
