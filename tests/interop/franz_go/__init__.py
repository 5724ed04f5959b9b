"""franz-go's own tests of its client, kgo, with those of transactions.

python -m tests.interop.franz_go [ottla|apache-kafka] [pattern]     runs them and compares with the expectations
"""
