"""Stable Diffusion inference. parameters.py: what a suite may set; model.py: the network (torch); workload.py: how it is fed, measured."""

from experiments.workloads.stable_diffusion.parameters import Parameters
from experiments.workloads.stable_diffusion.workload import build

__all__ = ["Parameters", "build"]
