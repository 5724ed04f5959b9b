"""Where the running copy of this package came from, and the command that adds one of its extras to it.

`pip install 'ottla[lake]'` is right only for a copy from an index: for one from a checkout it would install another
copy, or find none.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from importlib.metadata import Distribution

_NAME: Final = "ottla"
_OF_EXTRA: Final = re.compile(r"""(?P<rest>.*?)\s*(?:;|\band)\s*extra\s*==\s*['"](?P<extra>[^'"]+)['"]""")


def install_command(extra: str) -> str:
    """The command that adds the packages of this extra to the environment of this process."""
    return running_copy().command(extra)


class Installation(NamedTuple):
    """A copy of the package in an environment.

    `package`: its folder.  `distribution`: the metadata that the environment has of the package, if any.  `python`: the
    environment's.  `path`: where the user's shell finds programs.
    """

    package: Path
    distribution: Distribution | None
    python: Path
    path: str

    def command(self, extra: str) -> str:
        checkout = self._checkout()
        if checkout is not None:
            return f"{self._installer()} -e {quote(f'{checkout}[{extra}]')}"
        if self.distribution is None or self._place(self.distribution) != self.package:
            # As in an archive for Spark's workers.
            return f"install the packages of Ottla's extra {extra}"
        what = _requirement(extra, _direct_url(self.distribution))
        if what is None:
            # The packages alone: an index may have another Ottla of this version, or none.
            packages = _requirements(self.distribution, extra)
            return " ".join([self._installer(), *(quote(each.replace("'", '"')) for each in packages)])
        return f"{self._installer()} {quote(what)}"

    def _checkout(self) -> Path | None:
        """The source tree that the copy runs from: installed as editable, or by PYTHONPATH."""
        root = self.package.parent.parent
        is_checkout = self.package.parent.name == "src" and (root / "pyproject.toml").is_file()
        return root if is_checkout else None

    @staticmethod
    def _place(distribution: Distribution) -> Path:
        """Where the metadata's copy is: with PYTHONPATH another one may run than is installed."""
        return Path(str(distribution.locate_file(_NAME))).resolve()

    def _installer(self) -> str:
        """As short as it can be: `pip` alone is right only where the shell's pip is this environment's."""
        import shutil

        if self.distribution is not None and (self.distribution.read_text("INSTALLER") or "").strip() == "uv":
            # uv may be a package of the environment that it fills, whose programs the shell does not find.
            uv = "uv" if shutil.which("uv", path=self.path) else shutil.which("uv", path=str(self.python.parent))
            if uv is not None:
                return f"{quote(uv)} pip install --python {quote(str(self.python))}"
        pip = shutil.which("pip", path=self.path)
        if pip is not None and self.python.parent.samefile(Path(pip).parent):
            return "pip install"
        return f"{quote(str(self.python))} -m pip install"


def running_copy() -> Installation:
    # Only errors need it, and it is slow to import.
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        found = distribution(_NAME)
    except PackageNotFoundError:
        found = None
    package = Path(__file__).resolve().parents[1]
    python = Path(sys.executable)
    return Installation(package, found, python, shell_path(os.environ, python))


def shell_path(environ: Mapping[str, str], python: Path) -> str:
    """Where the user's shell finds programs: `./dev`, for one, adds those of its environment to the path of what it
    runs, not to the shell's, which has them where the environment is activated."""
    path = environ.get("PATH", os.defpath)
    environment = python.parent.parent
    activated = environ.get("VIRTUAL_ENV")
    is_activated = bool(activated) and Path(activated or "").resolve() == environment.resolve()
    if is_activated or not (environment / "pyvenv.cfg").is_file():
        return path
    programs = python.parent.resolve()
    return os.pathsep.join(folder for folder in path.split(os.pathsep) if Path(folder).resolve() != programs)


def _direct_url(distribution: Distribution) -> dict[str, Any]:
    """PEP 610: where it was installed from; empty for an index."""
    text = distribution.read_text("direct_url.json")
    record: dict[str, Any] = json.loads(text) if text else {}
    return record


def _requirement(extra: str, direct_url: dict[str, Any]) -> str | None:
    """What an installer is given to install the same copy with the extra; None where that copy is gone."""
    if not direct_url:
        return f"{_NAME}[{extra}]"
    url: str = direct_url["url"]
    subdirectory = f"#subdirectory={direct_url['subdirectory']}" if "subdirectory" in direct_url else ""
    if "vcs_info" in direct_url:
        version_control = direct_url["vcs_info"]
        return f"{_NAME}[{extra}] @ {version_control['vcs']}+{url}@{version_control['commit_id']}{subdirectory}"
    # It imports the standard library's client of HTTP.
    from urllib.request import url2pathname

    parts = urlsplit(url)
    if parts.scheme != "file":
        return f"{_NAME}[{extra}] @ {url}{subdirectory}"
    path = Path(url2pathname(parts.path))
    # Another user's, perhaps.
    return f"{path}[{extra}]" if os.access(path, os.R_OK) else None


def _requirements(distribution: Distribution, extra: str) -> list[str]:
    """The extra's requirements, with those of their markers that are not of the extra."""
    found = (_OF_EXTRA.fullmatch(each) for each in distribution.requires or ())
    return [each["rest"].strip() for each in found if each is not None and each["extra"] == extra]
