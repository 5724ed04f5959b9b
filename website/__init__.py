"""The site of docs/, as `./dev docs` builds it: what mkdocs does not do alone."""
