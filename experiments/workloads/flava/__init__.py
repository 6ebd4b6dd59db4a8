"""FLAVA pre-training. parameters.py: what a suite may set; model.py: the network (torch) and its FLOPs; batches.py: the three kinds of
batch; workload.py: how it is measured.
"""

from experiments.workloads.flava.parameters import CAVEAT, Parameters
from experiments.workloads.flava.workload import build

__all__ = ["CAVEAT", "Parameters", "build"]
