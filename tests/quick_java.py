"""How Java runs for the Spark of a test.

A session of a test lives for a minute or two, and Java's optimising compiler does not pay off: 42
small queries took 20 s of its processor instead of 47 s.
"""

from __future__ import annotations

from typing import Final

# Read by spark-submit, which also starts the JVM of a Python program, and never printed on standard error.
QUICK_JAVA: Final = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
