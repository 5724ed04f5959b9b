"""Raw page views to clean ones, each exactly once: consume, transform, produce, in transactions."""
