"""`python -m tasks.documents`: write README's results, the index of docs/results and the tables of metrics and held time from the data."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from experiments.config.errors import UserError
from tasks.documents.write import documents_of, stale, write_documents

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Exit status 1 where a document is not as it should be and was only to be checked, or cannot be written."""
    parser = argparse.ArgumentParser(prog="python -m tasks.documents", description=__doc__)
    parser.add_argument("--check", action="store_true", help="tell which documents are not as they would be written, and write nothing")
    check = parser.parse_args().check
    try:
        paths = list(stale(documents_of(ROOT))) if check else write_documents(ROOT)
    except (UserError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    for path in paths:
        print(f"{'would be written otherwise' if check else 'written'}: {path.relative_to(ROOT)}")
    return 1 if check and paths else 0


if __name__ == "__main__":
    sys.exit(main())
