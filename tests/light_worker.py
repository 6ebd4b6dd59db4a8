"""In place of cluster.worker.main where a launcher is tested: a process that writes what a trial writes, and starts in a moment.

Arguments: the trial's folder, the attempt. Of the parameters it knows steps, warmup_steps, and the fault setsid_child with its step.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from cluster.journal.journal import JournalWriter
from experiments.atomic_file import atomic_write


def main(folder: Path, attempt: int) -> None:
    trial = json.loads((folder / "trial.json").read_text())
    parameters = trial["parameters"]
    started_at = time.time()
    with JournalWriter(folder / "journal.jsonl", attempt, interval=0.01) as journal:
        for step in range(1, parameters["warmup_steps"] + parameters["steps"] + 1):
            if parameters.get("fault") == "setsid_child" and step == parameters["fault_step"]:
                child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"], start_new_session=True)
                print(f"left process {child.pid} behind", flush=True)
            journal.append("step", step=step)
            if step > 100:
                time.sleep(0.01)
    result = {"key": trial["key"], "attempt": attempt, "outcome": "ok", "started_at": started_at, "finished_at": time.time()}
    atomic_write(folder / "result.json", json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
