"""Iterators."""
