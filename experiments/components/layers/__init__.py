"""Classes of torch modules, of which workloads are made. They import torch, so only functions import them: the flow side has no torch."""
