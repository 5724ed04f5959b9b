"""The registries of groups without a coordinator: nodes below `/consumers` of the tree."""
