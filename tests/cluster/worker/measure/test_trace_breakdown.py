"""The table of traced steps, from made-up traces: kernels where there are any, else operators without those they called."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.worker.measure.trace_breakdown import breakdown, group_of


def event(name: str, ts: float, dur: float, cat: str = "kernel", tid: int = 7) -> dict[str, Any]:
    return {"ph": "X", "name": name, "ts": ts, "dur": dur, "cat": cat, "pid": 1, "tid": tid}


def test_kernels_are_grouped_and_idle_time_is_when_none_ran() -> None:
    events = [
        event("nvjet_sm90_tst_128x224", 0, 4e6),
        event("ncclDevKernel_AllReduce_Sum_bf16_RING", 3e6, 2e6, tid=8),  # beside the first: both count in full
        event("Memcpy HtoD", 7e6, 1e6, "gpu_memcpy"),
        event("nvjet_sm90_other", 8e6, 1e6),
        event("aten::mm", 0, 9e6, "cpu_op"),  # the host's view is left out where there are kernels
        {"ph": "i", "name": "mark", "ts": 1},
    ]
    found = breakdown(events, steps=2)
    assert found is not None and (found["where"], found["steps"]) == ("device", 2)
    assert (found["span_s"], found["idle_s"]) == (4.5, 1.0)
    assert [(g["group"], g["seconds"], g["calls"]) for g in found["groups"]] == [
        ("matrix products", 2.5, 1.0),
        ("communication", 1.0, 0.5),
        ("copies and casts", 0.5, 0.5),
    ]
    assert found["groups"][0]["top"] == "nvjet_sm90_tst_128x224"


def test_on_a_host_an_operator_counts_without_those_it_called() -> None:
    events = [
        event("aten::linear", 0, 5e6, "cpu_op"),
        event("aten::copy_", 1e6, 1e6, "cpu_op"),
        event("aten::mm", 2e6, 2e6, "cpu_op"),
        event("aten::gelu", 6e6, 1e6, "cpu_op"),
        event("aten::sum", 0, 1e6, "cpu_op", tid=8),  # another thread
    ]
    found = breakdown(events, steps=1)
    assert found is not None and (found["where"], found["span_s"], found["idle_s"]) == ("host", 7.0, 1.0)
    seconds = {g["group"]: g["seconds"] for g in found["groups"]}
    assert seconds == {"matrix products": 4.0, "copies and casts": 1.0, "elementwise": 1.0, "reductions": 1.0}


def test_a_trace_without_operations_has_no_table_and_no_steps_are_an_error() -> None:
    assert breakdown([{"ph": "X", "name": "python", "ts": 0, "dur": 5, "cat": "python_function"}], 1) is None
    with pytest.raises(ValueError, match="0 steps"):
        breakdown([], 0)


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop", "attention"),
        ("void at::native::multi_tensor_apply_kernel<FusedOptimizerTensorList>", "optimiser"),
        ("triton_poi_fused_addmm_gelu_12", "fused by torch.compile"),
        ("triton_tem_fused_addmm_3", "matrix products"),
        ("scaled_matmul", "matrix products"),  # of components/layers/triton_kernels.py
        ("triton_tem_fused_flex_attention_0", "attention"),
        ("sm80_xmma_dgrad_implicit_gemm_bf16bf16_bf16f32", "matrix products"),
        ("cudnn_wgrad2d_grouped_direct_kernel", "matrix products"),
        ("void at::native::vectorized_layer_norm_kernel<float>", "normalisation and softmax"),
        ("ampere_scudnn_128x64_relu_small_nn_v1", "matrix products"),  # cuDNN's convolutions in fp32, and in fp16
        ("ampere_fp16_s1688cudnn_fp16_128x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1", "matrix products"),
        ("turing_fp16_s16816cudnn_fp16_256x64_ldg8_relu", "matrix products"),
        ("void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>", "matrix products"),
        ("void at::native::conv_depthwise2d_forward_kernel<5, float>", "matrix products"),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>", "other"),
        ("triton_poi_fused_all_reduce_0", "fused by torch.compile"),  # the copy of what a collective then sums
        ("triton_tem_fused_mm_reduce_scatter_tensor_1", "matrix products"),
        ("void c10d::symmetric_memory::multimem_all_reduce_kernel", "communication"),
        ("gloo:all_reduce", "communication"),
        ("something new", "other"),
    ],
)
def test_groups(name: str, group: str) -> None:
    assert group_of(name) == group


@pytest.mark.parametrize("name", ["mm", "addmm", "bmm", "baddbmm", "_int_mm", "_scaled_mm", "_scaled_mm_v2"])
def test_every_operator_that_multiplies_matrices_is_a_product(name: str) -> None:
    assert group_of(f"aten::{name}") == "matrix products"
