"""The directories of one run: those that go with it, and those that `--keep` keeps."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

from ottla.model.errors import OttlaError

_REMOVE_TRIES: Final = 20
_REMOVE_PAUSE_S: Final = 0.1


class KeepDirectoryInUse(OttlaError):
    """What is there already would be mixed with the demo's own."""

    hint = "name a directory that does not exist yet, or an empty one"


class Workplace:
    """`data_dir` is the broker's, `lake` has the tables; `scratch` is for what nobody wants afterwards."""

    def __init__(self, keep: Path | None) -> None:
        if keep is not None:
            keep = keep.absolute()
            keep.mkdir(parents=True, exist_ok=True)
            if any(keep.iterdir()):
                raise KeepDirectoryInUse(f"{keep} is not empty")
        # A short name: Spark's sockets lie in it, and their paths may have little over a hundred bytes.
        self._temporary = Path(tempfile.mkdtemp(prefix="ottla-demo-"))
        self.scratch = self._temporary / "tmp"
        self.scratch.mkdir()
        home = keep or self._temporary
        self.data_dir = home / "broker"
        self.lake = home / "lake"

    def close(self) -> None:
        """Remove what is not kept.  A process that was just killed may still have written into it: hence the tries."""
        for _ in range(_REMOVE_TRIES):
            shutil.rmtree(self._temporary, ignore_errors=True)
            if not self._temporary.exists():
                return
            time.sleep(_REMOVE_PAUSE_S)
