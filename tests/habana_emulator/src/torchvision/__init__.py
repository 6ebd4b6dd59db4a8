"""optimum-habana imports torchvision.transforms without using it here. Without metadata, so that transformers sees no torchvision."""
