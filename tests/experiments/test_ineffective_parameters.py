from typing import Any

import pytest

from experiments.ineffective_parameters import without_effect


@pytest.mark.parametrize(
    ("parameters", "idle"),
    [
        ({"compile": "none", "compile_mode": "default", "multi_kernel": False}, {"compile_mode", "multi_kernel"}),
        ({"compile": "layer", "compile_mode": "default", "multi_kernel": False}, set()),
        ({"compile": "none", "compile_mode": "reduce-overhead"}, set()),
        ({"compile_mode": "default"}, set()),
        ({"precision": "bf16", "kernels": "stock"}, {"kernels"}),
        ({"precision": "fp8", "kernels": "stock"}, set()),
        ({"kernels": "stock"}, set()),
        ({"dataloader_workers": 0, "loader": "processes", "prefetch_factor": 2}, {"loader", "prefetch_factor"}),
        ({"dataloader_workers": 0, "loader": "threads", "prefetch_factor": 4}, set()),
        ({"dataloader_workers": 1, "loader": "processes", "prefetch_factor": 2}, set()),
        ({"padding": "kept", "round_tokens_to": 64}, {"round_tokens_to"}),
        ({"padding": "removed", "round_tokens_to": 64}, set()),
        ({"parallel": "ddp", "fsdp_reshard": True, "ddp_bucket_view": True}, {"fsdp_reshard"}),
        ({"parallel": "fsdp2", "fsdp_reshard": True, "ddp_bucket_view": True}, {"ddp_bucket_view"}),
        ({"parallel": "of_its_own", "fsdp_reshard": True}, set()),
    ],
)
def test_what_another_parameter_leaves_without_effect_and_is_at_its_default(parameters: dict[str, Any], idle: set[str]) -> None:
    assert without_effect(parameters) == idle
