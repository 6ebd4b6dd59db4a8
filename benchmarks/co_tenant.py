"""A co-tenant: processes that compute as fast as they can beside a measurement, one a core."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LATE_S, _SPELL_S = 20.0, 5.0
_BURN = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(10**6))\n"  # ends with who started it


@contextmanager
def co_tenant(kind: str | None) -> Iterator[None]:
    """Run beside what the block does: `all night`, `from 20 s on`, `in spells of 5 s` (and as long without); None: nobody."""
    if kind is None:
        yield
        return
    burners = [subprocess.Popen([sys.executable, "-c", _BURN]) for _ in range(os.cpu_count() or 1)]
    ended = threading.Event()
    switch = threading.Thread(target=_switch, args=(burners, kind, ended))
    switch.start()
    try:
        yield
    finally:
        ended.set()
        switch.join()
        for burner in burners:
            burner.kill()
            burner.wait()


def _switch(burners: list[subprocess.Popen[bytes]], kind: str, ended: threading.Event) -> None:
    """Hold the burners and let them go on, by their kind, until `ended`."""
    if kind == "all night":
        return
    _send(burners, signal.SIGSTOP)
    if not ended.wait(_LATE_S if kind == "from 20 s on" else _SPELL_S):
        _send(burners, signal.SIGCONT)
    going = True
    while kind == "in spells of 5 s" and not ended.wait(_SPELL_S):
        going = not going
        _send(burners, signal.SIGCONT if going else signal.SIGSTOP)


def _send(burners: list[subprocess.Popen[bytes]], number: int) -> None:
    for burner in burners:
        burner.send_signal(number)
