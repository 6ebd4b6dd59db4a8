"""Environments: library versions in which a trial can run instead of the pool's own, each made once from a file, by its content."""
