"""What the documents say of results: README's first table and its table of suites, and the index of docs/results, from the published pages."""
