"""What a release has besides its packages: locked requirements and a bill of materials (docs/releasing.md)."""
