"""The parts of a broker in the order in which they start; `Broker.start` calls these steps."""
