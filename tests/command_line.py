"""Verbs of `ottla`, run to their end.

In this process, for to start one takes longer than most verbs; in a separate one where that is what a test is about.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Final, NamedTuple
from unittest import mock

from ottla.cli.program import run

PROCESS_ENDS_WITHIN_S: Final = 240


class Done(NamedTuple):
    status: int
    stdout: bytes
    stderr: bytes

    @property
    def out(self) -> str:
        return self.stdout.decode()

    @property
    def err(self) -> str:
        return self.stderr.decode()

    @property
    def rows(self) -> list[list[str]]:
        """Those of a table, below its head."""
        return [line.split() for line in self.out.splitlines()[1:]]


def ottla(
    *arguments: object, stdin: str | bytes = b"", status: int | None = 0, environment: Mapping[str, str] | None = None
) -> Done:
    """Run a verb, whose exit status must be `status`, or is any.  Its standard input is a file."""
    out, err = io.BytesIO(), io.BytesIO()
    # Held to the end: a stream that is dropped closes what it writes to.
    out_text, err_text = (io.TextIOWrapper(each, encoding="utf-8", write_through=True) for each in (out, err))
    with tempfile.TemporaryFile() as source:
        source.write(stdin.encode() if isinstance(stdin, str) else stdin)
        source.seek(0)
        given = io.TextIOWrapper(source, encoding="utf-8")
        with (
            mock.patch.dict(os.environ, environment or {}),
            mock.patch("sys.stdin", given),
            mock.patch("sys.stdout", out_text),
            mock.patch("sys.stderr", err_text),
        ):
            found = run([str(argument) for argument in arguments])
    done = Done(found, out.getvalue(), err.getvalue())
    assert status in (found, None), done.out + done.err
    return done


def ottla_process(*arguments: object, stdin: bytes = b"", status: int = 0) -> Done:
    """Run a verb in a process, in pipes."""
    command = [sys.executable, "-m", "ottla", *map(str, arguments)]
    ended = subprocess.run(command, input=stdin, capture_output=True, timeout=PROCESS_ENDS_WITHIN_S, check=False)
    done = Done(ended.returncode, ended.stdout, ended.stderr)
    assert done.status == status, done.out + done.err
    assert b"Traceback" not in done.stderr
    return done
