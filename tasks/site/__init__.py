"""The site of nights: static pages, in one folder, of every cell with its history, every night, sweeps and certificates."""
