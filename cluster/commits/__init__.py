"""Trials of other commits: which commit a name means, its files in a git worktree, and the trial as that commit's code reads it."""
