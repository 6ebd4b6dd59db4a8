"""Inference of large language models. parameters.py: what a suite may set; model.py: prefill and decoding (torch)."""

from experiments.workloads.causal_lm_inference.parameters import Parameters
from experiments.workloads.causal_lm_inference.workload import build

__all__ = ["Parameters", "build"]
