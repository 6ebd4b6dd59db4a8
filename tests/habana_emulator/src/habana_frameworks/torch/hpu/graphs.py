"""HPU graphs: the operations of a capture, recorded below autograd and autocast, and done again on replay, on the same tensors."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_unflatten


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.operations: list[Any] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        self.operations.append((function, args, kwargs or {}, out))
        return out


class HPUGraph:
    """One recorded sequence. A tensor made anew since the capture, such as a gradient that was set to None, is not seen by a replay."""

    captures = replays = 0

    def __init__(self) -> None:
        self._recorder = _Recorder()

    def capture_begin(self, *_: Any, **__: Any) -> None:
        torch.clear_autocast_cache()  # else a weight's cast from before the capture would not be part of it
        self._recorder.__enter__()

    def capture_end(self) -> None:
        self._recorder.__exit__(None, None, None)
        HPUGraph.captures += 1

    @contextmanager
    def capture(self) -> Iterator[None]:
        self.capture_begin()
        try:
            yield
        finally:
            self.capture_end()

    def replay(self, asynchronous: bool = False) -> None:
        HPUGraph.replays += 1
        with torch.no_grad(), torch.autocast("hpu", enabled=False):
            for function, args, kwargs, out in self._recorder.operations:
                new = function(*args, **kwargs)
                if function._schema.is_mutable:
                    continue  # has written into a recorded tensor
                for old, fresh in zip(tree_flatten(out)[0], tree_flatten(new)[0], strict=True):
                    if isinstance(old, torch.Tensor) and old.data_ptr() != fresh.data_ptr():
                        old.copy_(fresh)  # a view is the recorded memory already

    def reset(self) -> None:
        self._recorder = _Recorder()


class _Captured:
    """A module's forward, and its backward where gradients are on, at one set of shapes, on tensors of its own."""

    def __init__(self, module: Any, forward: Callable[..., Any], args: Any, kwargs: Any, unused: bool) -> None:
        leaves, self.spec = tree_flatten((args, kwargs))
        self.inputs = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self.parameters = [one for one in module.parameters() if one.requires_grad] if torch.is_grad_enabled() else []
        self.forward_graph, self.backward_graph = HPUGraph(), HPUGraph()
        static_args, static_kwargs = tree_unflatten(self.inputs, self.spec)
        with self.forward_graph.capture():
            out = forward(*static_args, **static_kwargs)
        self.outputs, self.out_spec = tree_flatten(out)
        if not self.parameters:
            return
        self.differentiable = [one for one in self.outputs if isinstance(one, torch.Tensor) and one.requires_grad]
        self.out_grads = [torch.zeros_like(one) for one in self.differentiable]
        with self.backward_graph.capture(), torch.autocast("hpu", enabled=False):
            self.grads = torch.autograd.grad(self.differentiable, self.parameters, self.out_grads, allow_unused=unused)

    def run(self, args: Any, kwargs: Any) -> Any:
        for static, given in zip(self.inputs, tree_flatten((args, kwargs))[0], strict=True):
            if isinstance(static, torch.Tensor):
                static.copy_(given)
        if not self.parameters:
            self.forward_graph.replay()
            return tree_unflatten(self.outputs, self.out_spec)
        results = iter(_Replay.apply(self, *self.parameters))
        tracked = {id(one) for one in self.differentiable}
        return tree_unflatten([next(results) if id(one) in tracked else one for one in self.outputs], self.out_spec)


class _Replay(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, captured: _Captured, *parameters: Any) -> Any:
        ctx.captured = captured
        captured.forward_graph.replay()
        return tuple(one.detach().clone() for one in captured.differentiable)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        captured = ctx.captured
        for static, given in zip(captured.out_grads, grads, strict=True):
            static.copy_(given)
        captured.backward_graph.replay()
        return None, *(None if grad is None else grad.clone() for grad in captured.grads)


def wrap_in_hpu_graph(module: Any, asynchronous: bool = False, disable_tensor_cache: bool = False, **_: Any) -> Any:
    """Replace `module.forward` by captures, one for each set of shapes, and their replays."""
    return _cache(module, unused=False)


def _cache(module: Any, *, unused: bool) -> Any:
    forward = module.forward
    captured: dict[Any, _Captured] = {}

    def replayed(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = tree_flatten((args, kwargs))
        shapes = tuple((tuple(one.shape), one.dtype) if isinstance(one, torch.Tensor) else repr(one) for one in leaves)
        key = (shapes, str(spec), module.training, torch.is_grad_enabled(), torch.is_autocast_enabled("hpu"))
        if key not in captured:
            captured[key] = _Captured(module, forward, args, kwargs, unused)
        return captured[key].run(args, kwargs)

    module.forward = replayed
    return module


class ModuleCacher:
    """Graphs for training: forward and backward."""

    def __init__(self, max_graphs: int = 10) -> None:
        self.max_graphs = max_graphs

    def __call__(self, model: Any, inplace: bool = True, allow_unused_input: bool = False, **_: Any) -> Any:
        return _cache(model, unused=allow_unused_input)
