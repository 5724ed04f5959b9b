"""The shared tree and what is written once over it: registries, topics, configs, elections."""
