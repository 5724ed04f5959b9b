from __future__ import annotations

import os
import subprocess
from pathlib import Path

from ottla.spark.java_install import write_shim


def test_the_shim_passes_all_arguments_but_the_missing_module(tmp_path: Path) -> None:
    java = tmp_path / "it's java"
    java.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    java.chmod(0o755)
    shim = tmp_path / "home" / "bin" / "java"
    write_shim(shim, java)
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "-cp", "x/*"]
    answer = subprocess.run([shim, *arguments], capture_output=True, text=True, check=True, env=os.environ)
    assert answer.stdout == "-Xmx1g|a b||-cp|x/*|"
