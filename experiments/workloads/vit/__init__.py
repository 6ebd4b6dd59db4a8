"""Vision transformer training. parameters.py: what a suite may set; model.py: the network (torch); workload.py: how it is fed, measured."""

from experiments.workloads.vit.parameters import Parameters
from experiments.workloads.vit.workload import build

__all__ = ["Parameters", "build"]
