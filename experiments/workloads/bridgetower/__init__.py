"""BridgeTower fine-tuning. parameters.py: what a suite may set; model.py: the network (torch); workload.py: how it is fed and measured."""

from experiments.workloads.bridgetower.parameters import Parameters
from experiments.workloads.bridgetower.workload import build

__all__ = ["Parameters", "build"]
