"""The directories of one run: those that are removed with it, and those of `--keep`."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

from ottla.model.errors import OttlaError

# Spark reads other characters as a pattern, and the Delta library as parts of a URL.
_PLAIN_PATH: Final = re.compile(r"[\w /.+=@:~-]+")
_REMOVE_TRIES: Final = 20
_REMOVE_PAUSE_S: Final = 0.1


class UnfitDirectory(OttlaError):
    """The demo's data cannot be kept there."""


class Workplace:
    """`data_dir` is the broker's, `lake` has the tables, `checkpoints` the streams' state; `scratch` is temporary."""

    def __init__(self, keep: Path | None) -> None:
        if keep is not None:
            keep = keep.absolute()
            _check_fit(keep)
            keep.mkdir(parents=True, exist_ok=True)
        self._temporary = Path(tempfile.mkdtemp(prefix="ottla-demo-"))
        self.scratch = self._temporary / "tmp"
        self.scratch.mkdir()
        home = self._temporary if keep is None else keep
        self.is_kept = keep is not None
        self.data_dir = home / "broker"
        self.lake = home / "lake"
        self.checkpoints = home / "checkpoints"

    def close(self) -> None:
        """Remove what is not kept.  A process that was just killed may still write into it: hence the retries."""
        for _ in range(_REMOVE_TRIES):
            shutil.rmtree(self._temporary, ignore_errors=True)
            if not self._temporary.exists():
                return
            time.sleep(_REMOVE_PAUSE_S)


def _check_fit(keep: Path) -> None:
    if not _PLAIN_PATH.fullmatch(str(keep)):
        raise UnfitDirectory(
            f"the lake cannot be in {keep}", hint="name a directory of letters, digits, spaces and _ . + = @ : ~ -"
        )
    if keep.exists() and any(keep.iterdir()):
        raise UnfitDirectory(f"{keep} is not empty", hint="name a directory that does not exist yet, or an empty one")
