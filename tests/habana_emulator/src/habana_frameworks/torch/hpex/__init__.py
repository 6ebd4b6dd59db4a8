"""Fused kernels."""
