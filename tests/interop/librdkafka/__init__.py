"""librdkafka's own broker tests, built from the source that the `rdkafka-sys` crate carries.

python -m tests.interop.librdkafka [ottla|apache-kafka] [number ...]     runs them and compares with the expectations
"""
