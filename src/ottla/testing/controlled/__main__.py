"""`python -m ottla.testing.controlled FD`: see process.py."""

from __future__ import annotations

import gc
import sys

# Hundreds of modules are imported, of which nothing is garbage; `serve` enables it again.
gc.disable()

from ottla.testing.controlled.process import main  # noqa: E402

sys.exit(main())
