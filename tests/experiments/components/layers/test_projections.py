"""The projections that stand for outputs in loss parity: their values, what leaves them as they are, and what does not."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from experiments.components.layers.projections import PATTERNS, BatchProjection, Projections
from experiments.stats.loss_parity import Parity, ParityStatus, loss_parity

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = torch.device("cpu")
CONTRAST = 0.1
SHAPE = (3, 64, 64)
OTHERS = 256


def drawn(count: int, seed: int = 3) -> torch.Tensor:
    """Images (count, 3, 64, 64) of soft blots, of mean 0.5 and standard deviation CONTRAST each."""
    blots = torch.nn.functional.avg_pool2d(torch.randn(count, *SHAPE, generator=torch.Generator().manual_seed(seed)), 9, 1, 4)
    blots = blots - blots.mean((1, 2, 3), keepdim=True)
    return 0.5 + CONTRAST * blots / blots.std((1, 2, 3), keepdim=True)


def losses(images: torch.Tensor) -> torch.Tensor:
    """What a batch of each single image has as its loss."""
    return Projections(SHAPE, CPU, about=0.5)(images).mean(1)


def apart(found: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return losses(found) / losses(wanted) - 1


def parity(found: torch.Tensor, wanted: torch.Tensor) -> Parity:
    return loss_parity({0: losses(found).numpy()}, {0: losses(wanted).numpy()}, trains=False)


def proven(found: torch.Tensor, wanted: torch.Tensor, steps: int) -> list[bool]:
    """Of each run of so many steps, one image a step."""
    return [parity(*pair).status is ParityStatus.PROVEN for pair in zip(found.split(steps), wanted.split(steps), strict=True)]


def test_the_values_are_those_of_the_definition() -> None:
    projections = Projections((2, 2, 3), CPU, about=0.5)
    channels, rows, columns = projections.signs
    image = torch.tensor([[[0.1, 0.9, 0.4], [0.7, 0.2, 0.5]], [[1.0, 0.0, 0.3], [0.6, 0.8, 0.25]]])
    found = projections(image[None])
    assert found.shape == (1, PATTERNS) and found.dtype == torch.float32
    for k in range(PATTERNS):
        total = 0.0
        for c in range(2):
            for i in range(2):
                for j in range(3):
                    sign = float(channels[k, c] * rows[k, i] * columns[k, j])
                    assert abs(sign) == 1
                    total += sign * (float(image[c, i, j]) - 0.5)
        assert float(found[0, k]) == pytest.approx(abs(total) / math.sqrt(12), abs=1e-6)


def test_an_image_that_is_a_pattern_lies_along_it_wholly() -> None:
    projections = Projections(SHAPE, CPU, about=0.5)
    patterns = torch.einsum("kc,kh,kw->kchw", *projections.signs)
    found = projections(0.5 + CONTRAST * patterns)
    assert found.diagonal().tolist() == pytest.approx([CONTRAST * math.sqrt(3 * 64 * 64)] * PATTERNS, rel=1e-5)
    assert projections(torch.full((1, *SHAPE), 0.5)).tolist() == [[0.0] * PATTERNS]


def test_the_patterns_are_the_same_everywhere_and_at_every_place_of_a_batch() -> None:
    one, again = (Projections((3, 512, 512), CPU, about=0.5) for _ in range(2))
    for signs, same, total in zip(one.signs, again.signs, (-2, 56, -46), strict=True):
        assert torch.equal(signs, same) and set(signs.unique().tolist()) == {-1.0, 1.0}
        assert signs.sum() == total, "no other draws than those of earlier trials"
    assert len({tuple(row) for row in one.signs[-1].tolist()}) == PATTERNS
    images = drawn(5)
    each = torch.stack([losses(image[None])[0] for image in images])
    for batch, wanted in ((images, each), (images.flip(0), each.flip(0)), (images[:1].expand(4, *SHAPE), each[:1].expand(4))):
        assert torch.allclose(losses(batch), wanted, rtol=1e-5, atol=0)


@pytest.mark.parametrize(("share", "least"), [(0.001, 24), (0.004, 20)])
def test_rounding_passes(share: float, least: int) -> None:
    """Noise of a part of the contrast: the loss of an image differs by about a third of that part. Of 24 times 10 steps, so many pass."""
    images = drawn(240)
    noisy = images + share * CONTRAST * torch.randn(images.shape, generator=torch.Generator().manual_seed(4))
    differences = apart(noisy, images)
    assert 0.25 * share < float(differences.std()) < 0.45 * share and float(differences.abs().max()) < 2 * share
    assert sum(proven(noisy, images, 10)) >= least


def test_three_seeds_pass_with_more_rounding_than_one() -> None:
    """Of 8 times 10 steps, with noise of 0.8 % of the contrast."""
    images = drawn(240)
    noisy = images + 0.008 * CONTRAST * torch.randn(images.shape, generator=torch.Generator().manual_seed(4))
    ours, theirs = (losses(each).reshape(8, 3, 10).numpy() for each in (noisy, images))
    passed = [
        [
            loss_parity(dict(enumerate(our[:seeds])), dict(enumerate(their[:seeds])), trains=False).status is ParityStatus.PROVEN
            for our, their in zip(ours, theirs, strict=True)
        ]
        for seeds in (1, 3)
    ]
    assert sum(passed[0]) <= 5 and sum(passed[1]) >= 7


@pytest.mark.parametrize("change", ["mirrored", "upside down", "shifted", "other", "channels exchanged"])
def test_other_contents_of_equal_brightness_and_contrast_are_not_taken_for_the_same(change: str) -> None:
    images = drawn(OTHERS)
    other = {
        "mirrored": images.flip(-1),
        "upside down": images.flip(-2),
        "shifted": images.roll(8, -1),
        "other": drawn(OTHERS, seed=5),
        "channels exchanged": images.roll(1, 1),
    }[change]
    for measure in (torch.mean, torch.std):
        assert torch.allclose(measure(other, (1, 2, 3)), measure(images, (1, 2, 3)), rtol=1e-4)
    differences = apart(other, images)
    assert 0.2 < float(differences.std()) < 0.45
    assert float((differences.abs() > 0.005).float().mean()) > 0.96
    assert not any(proven(other, images, 8))
    brightness = loss_parity({0: other[:8].mean((1, 2, 3)).numpy()}, {0: images[:8].mean((1, 2, 3)).numpy()}, trains=False)
    assert brightness.status is ParityStatus.PROVEN, "which is why the loss is no brightness"


def test_brightness_and_contrast_count_too_and_hide_no_content() -> None:
    images = drawn(OTHERS)
    assert 0.02 < float(apart(images + 0.01, images).std()) < 0.06
    assert not any(proven(images + 0.01, images, 8))
    assert torch.allclose(apart(0.5 + 1.02 * (images - 0.5), images), torch.tensor(0.02), atol=1e-4)
    assert parity(0.5 + 1.02 * (images[:8] - 0.5), images[:8]).status is ParityStatus.STRUCK
    bright = images + 0.3
    assert float((apart(bright.flip(-1), bright).abs() > 0.005).float().mean()) > 0.96


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_pixel_that_is_not_finite_shows(value: float) -> None:
    images = drawn(3)
    images[1, 2, 63, 0] = value
    found = Projections(SHAPE, CPU, about=0.5)(images)
    assert found.isfinite().all(1).tolist() == [True, False, True] and not found[1].isfinite().any()
    assert not math.isfinite(float(found.mean()))
    images[1, 0, 0, 0] = -value
    assert not Projections(SHAPE, CPU, about=0.5)(images)[1].isfinite().any(), "nor where two of them cancel"


def test_sums_are_in_fp32_whatever_the_images_and_the_autocast() -> None:
    images = drawn(4).half()
    wanted = losses(images.float())
    assert torch.equal(losses(images), wanted)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(losses(images), wanted)


def scores(batch: int, seed: int = 3) -> torch.Tensor:
    return torch.randn(batch, 300, generator=torch.Generator().manual_seed(seed))


def test_a_batch_is_projected_as_one_output_about_zero() -> None:
    batch = scores(5)
    signs = Projections((5, 300), CPU).signs
    wanted = torch.einsum("nv,kn,kv->k", batch.double(), *(each.double() for each in signs)).abs().mean() / math.sqrt(1500)
    project = BatchProjection()
    found = project(batch)
    assert found.shape == () and found.dtype == torch.float32 and float(found) == pytest.approx(float(wanted), rel=1e-5)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        assert project(batch) == found
        assert project(batch.half()) == BatchProjection()(batch.half().float())
    assert project(batch[:2]) == BatchProjection()(batch[:2]), "batches of other sizes have patterns of their own"
    assert project(batch.roll(1, 0)) != pytest.approx(float(found), rel=1e-3), "exchanged samples show"
    batch[4, 299] = math.nan
    assert project(batch).isnan()


@pytest.mark.parametrize(("noise", "least", "most"), [(0.01, 0.002, 0.0045), (0.1, 0.02, 0.045)])
def test_large_batches_do_not_hide_what_small_ones_show(noise: float, least: float, most: float) -> None:
    """The standard deviation of the loss is about 0.3 times that of the noise, whatever the batch."""
    for size in (1, 64):
        project, found = BatchProjection(), []
        for step in range(100):
            right = scores(size, step)
            found.append(float(project(right + noise * scores(size, 1000 + step)) / project(right) - 1))
        assert least < float(torch.tensor(found).std()) < most


class NoReading(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func is not torch.ops.aten._local_scalar_dense.default, "the host would wait for the device"
        return func(*args, **(kwargs or {}))


def test_nothing_is_read_from_the_device_and_patterns_are_made_once() -> None:
    project, batch = BatchProjection(), scores(4)
    with NoReading():
        first = project(batch)
    made = [each.data_ptr() for each in project._made[batch.shape].signs]
    with NoReading():
        assert torch.equal(project(batch), first)
    assert [each.data_ptr() for each in project._made[batch.shape].signs] == made, "a CUDA graph reads them where they lay"
