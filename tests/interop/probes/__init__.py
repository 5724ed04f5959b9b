"""The same requests, frame by frame, to Ottla and to Apache Kafka: the answers are compared field by field.

python -m tests.interop.probes     shows every difference
"""
