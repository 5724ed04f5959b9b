"""The site of docs/ as `./dev docs` builds it, in a real browser."""
