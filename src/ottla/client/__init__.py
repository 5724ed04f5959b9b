"""The blocking client core that the command line, Spark and the tests share."""
