"""What the documents say of results, from the published pages: README's first table and its table of suites, the index of docs/results."""
