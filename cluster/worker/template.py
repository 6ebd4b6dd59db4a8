"""The template process: it imports what trials need, once, and forks a fresh process for each of them.

A trial of some seconds otherwise spends as long on importing torch, Ray Train and its model's modules. The template itself runs no trial,
opens no device and starts no Python thread, so that a forked process begins as a new one would after its imports. It learns what to
import from the trials themselves: each reports at its end which modules it had to import.

An embedded pool's launcher starts one (cluster/launchers/template.py) and is connected to it by `--channel`: trials outlive both. On a
node of a Ray cluster the first job starts one (cluster/worker/warm_job.py), and all jobs that need the same one connect to its `--name`:
trials end with their jobs, and the template with Ray.
"""

from __future__ import annotations

import argparse
import os
import socket

from cluster.packages import installed
from cluster.source_tree import running_tree
from cluster.worker import node_socket
from cluster.worker.fork_server import ForkServer
from cluster.worker.template_imports import BASE, EVERY_TRIAL, import_modules, leave_out


def main() -> None:
    """Import, and serve: until the launcher is gone, or nobody has asked for long, and all trials have ended."""
    parser = argparse.ArgumentParser(prog="python -m cluster.worker.template", description=__doc__)
    parser.add_argument("--workload", required=True, help="a file in experiments/workloads")
    parser.add_argument("--leave-out", nargs="*", default=[], help="modules that an earlier template could import only half-way")
    serves = parser.add_mutually_exclusive_group(required=True)
    serves.add_argument("--channel", type=int, help="file descriptor of the connection to the launcher")
    serves.add_argument("--name", help="name of the socket that the jobs of this node connect to, without its first byte, which is 0")
    parser.add_argument("--raylet", type=int, help="with --name: Ray's process, with which this one ends")
    parser.add_argument("--started", type=int, help="with --name: file descriptor to close once jobs can connect")
    options = parser.parse_args()
    server = ForkServer()
    if options.name:
        server.serve_jobs(node_socket.listen(f"\0{options.name}"), os.pidfd_open(options.raylet))
        os.close(options.started)
    else:
        server.serve_launcher(socket.socket(fileno=options.channel))
    running_tree()  # of the code that is imported now; trials inherit it
    installed()  # likewise: some 50 ms for each trial else
    leave_out(options.leave_out)
    import_modules([*BASE, *EVERY_TRIAL, f"experiments.workloads.{options.workload}"])
    server.run()


if __name__ == "__main__":
    main()
