"""`ottla log`, `ottla backup` and `ottla restore`: what works on data directories."""
