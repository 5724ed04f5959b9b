"""Ottla: a Kafka broker that you can pip install, and the pipeline around it.

Importing this package starts nothing and imports neither pyspark nor kazoo.
"""

__version__ = "0.1.0"
