"""Next steps: commands that can be pasted into a shell."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from ottla.demo.lake import DEAD_LETTERS, TABLE, TOP_PAGES


def next_steps(keep: Path | None, environment: Mapping[str, str]) -> Iterator[str]:
    """`keep`: the directory of this run's data."""
    # `./dev` uses its virtual environment without the user's shell being in it.
    if sys.prefix != sys.base_prefix and environment.get("VIRTUAL_ENV") != sys.prefix:
        yield f". {shlex.quote(sys.prefix)}/bin/activate"
    if keep is None:
        yield "ottla demo --keep demo-data    # the same; keeps the log and the lake"
        yield "ottla serve --data-dir data    # a broker for your own clients"
        yield "# README.md has snippets for many clients, docs/guide/ a page for each job"
        return
    lake = keep / "lake"
    data_dir = shlex.quote(str(keep / "broker"))
    yield f"ottla serve --data-dir {data_dir}    # and in another terminal:"
    yield "ottla topic list"
    yield "ottla consume page-views --from-beginning --max-messages 5 --json"
    yield f"ottla audit status page-views --tier {TABLE}"
    yield "ottla dead-letter list page-views"
    yield "ottla dead-letter replay page-views --dry-run"
    yield f"ottla log verify {data_dir} --deep"
    yield _show_table("sample(5)", lake / TOP_PAGES)
    yield _show_table("head()", lake / DEAD_LETTERS)


def _show_table(rows: str, table: Path) -> str:
    code = f"import sys, deltalake; print(deltalake.DeltaTable(sys.argv[1]).to_pandas().{rows})"
    return f"python -c '{code}' {shlex.quote(str(table))}"
