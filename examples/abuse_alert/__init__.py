"""An alert for each member and window of time with too many actions, by a stream of Spark."""
