"""Open a page in the browser once its server answers: `python open_page.py HEALTH_URL PAGE_URL`. Ends with the process that started it."""

from __future__ import annotations

import os
import sys
import time
import urllib.request
import webbrowser

_MOST_S = 120.0
_LOOK_S = 0.3


def main(health: str, page: str) -> None:
    deadline, parent = time.monotonic() + _MOST_S, os.getppid()
    while time.monotonic() < deadline and os.getppid() == parent:
        try:
            urllib.request.urlopen(health, timeout=5).close()  # noqa: S310 - a server of this machine
        except OSError:
            time.sleep(_LOOK_S)
        else:
            webbrowser.open(page)
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
