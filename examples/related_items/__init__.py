"""Items that members look at in the same session, counted by a stream of Spark."""
