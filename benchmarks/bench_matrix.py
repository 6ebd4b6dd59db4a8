"""Seconds to expand 100,000 cells with excludes and conditions, on one core. Prints one JSON line; exit status 1 over the limit."""

from __future__ import annotations

import json
import sys
import time
from typing import Literal

from pydantic import Field, model_validator

from experiments.parameters import TrainingParameters
from experiments.spec.matrix import expansion, order
from experiments.spec.schema import Condition, ReportSettings, Suite

LIMIT_S = 5.0


class Parameters(TrainingParameters):
    """As large as a real workload's, with a check over several fields, which has to see every cell."""

    model: Literal["large", "base", "tiny"] = "tiny"
    attention: Literal["eager", "sdpa"] = "eager"
    text_length: int = Field(default=128, ge=4, le=512)
    dataset: str = "drawn"
    minimum: int = 1
    maximum: int = 2

    @model_validator(mode="after")
    def _ordered(self) -> Parameters:
        if self.minimum > self.maximum:
            raise ValueError("minimum is above maximum")
        return self


def suite() -> Suite:
    """8 axes and a linked pair: 115,200 combinations, of which the excludes leave 100,800."""
    return Suite(
        suite="bench",
        description="",
        workload="bench",
        profile="full",
        file="bench.yaml",
        pools={"a": "cpu", "b": "cuda", "c": "hpu"},
        fixed={"steps": 10},
        axes={
            "pool": ["a", "b", "c"],
            "model": ["large", "base"],
            "precision": ["fp32", "tf32", "bf16", "fp16"],
            "dataloader_workers": [0, 1, 2, 4, 8],
            "optimizer": ["per_parameter", "foreach"],
            "compile": ["none", "layer"],
            "pin_memory": [True, False],
            "seed": list(range(60)),
        },
        linked=[{"attention": ["eager", "sdpa"], "learning_rate": [1e-4, 1e-3]}],
        conditions=[
            Condition(when={"device": "hpu"}, set={"batch_size": 48}),
            Condition(when={"device": "cuda", "precision": ["bf16", "fp16"]}, set={"batch_size": 32, "accumulation_steps": 2}),
            Condition(when={"model": "large", "dataloader_workers": 0}, set={"text_length": 77}),
        ],
        exclude=[
            {"device": "hpu", "precision": "fp16", "compile": "layer"},
            {"pool": "a", "precision": ["tf32", "fp16"], "optimizer": "foreach"},
        ],
        include=[],
        sets={},
        only={},
        repeats=1,
        limit=100_000,
        baseline={},
        report=ReportSettings(rows=["pool"], columns="precision"),
        retries=2,
        hang_timeout_s=600.0,
    )


def main() -> int:
    started = time.perf_counter()
    matrix = expansion(suite(), Parameters)
    trials = order(matrix.cells, 1)
    seconds = time.perf_counter() - started
    print(json.dumps({"benchmark": "matrix", "cells": len(trials), "seconds": round(seconds, 3), "limit_s": LIMIT_S}))
    return 0 if seconds < LIMIT_S and len(trials) >= 100_000 else 1


if __name__ == "__main__":
    sys.exit(main())
