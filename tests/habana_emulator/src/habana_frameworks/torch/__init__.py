"""Emulated `import habana_frameworks.torch`: registers torch.hpu and the device."""

import torch as _torch

EMULATED = True  # what tells an emulated device from a Gaudi

from . import _hpu_device, core, hpu  # noqa: E402, F401

if not hasattr(_torch, "hpu"):
    _torch._register_device_module("hpu", hpu)  # the hook of out-of-tree devices: sets torch.hpu
    _hpu_device.set_limit(hpu.LIMIT)
    from .dynamo import compile_backend

    compile_backend.register()
