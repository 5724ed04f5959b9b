"""Handler tests are coroutines over a broker in memory."""

from tests.run_async import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]
