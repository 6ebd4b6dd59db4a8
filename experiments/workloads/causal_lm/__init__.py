"""Training of large language models. parameters.py: what a suite may set; shapes.py: published shapes; model.py: network, loss."""

from experiments.workloads.causal_lm.parameters import Parameters
from experiments.workloads.causal_lm.workload import build

__all__ = ["Parameters", "build"]
