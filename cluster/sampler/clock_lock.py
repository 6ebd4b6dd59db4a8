"""Lock the SM clock of GPUs while a trial runs, and release it afterwards, through nvidia-smi. The driver permits it to root alone."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

_TIMEOUT_S = 20.0


class ClockLock:
    """The lock of some GPUs' clocks at `mhz`. `gpus`: index or UUID each, as nvidia-smi takes them."""

    def __init__(self, gpus: Sequence[str], mhz: int) -> None:
        self._gpus, self._mhz = gpus, mhz
        self._locked: list[str] = []

    def set(self) -> str | None:
        """Lock all GPUs or none. Returns why they are not locked; None if they are."""
        if not self._gpus:
            return "no GPU is visible"
        for gpu in self._gpus:
            problem = _nvidia_smi(gpu, "-lgc", f"{self._mhz},{self._mhz}")
            if problem:
                self.release()
                return problem
            self._locked.append(gpu)
        return None

    def release(self) -> str | None:
        """Release what is locked. Returns why that failed; None if it did not."""
        problems = [problem for gpu in self._locked if (problem := _nvidia_smi(gpu, "-rgc"))]
        self._locked = []
        return "; ".join(problems) or None


def _nvidia_smi(gpu: str, *options: str) -> str | None:
    """What is wrong; None if it did what it was told."""
    try:
        done = subprocess.run(
            ["nvidia-smi", "-i", gpu, *options], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"nvidia-smi: {error}"
    text = " ".join((done.stdout + done.stderr).split())
    if done.returncode or "not supported" in text.lower():  # what a GPU does not support is a warning to it, with exit status 0
        return f"nvidia-smi -i {gpu} {' '.join(options)}: {text[:200] or f'exit status {done.returncode}'}"
    return None
