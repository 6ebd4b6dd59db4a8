"""Samples of various lengths: how long they are, and that removing their padding loses no token."""

from __future__ import annotations

import math
import random

import pytest
import torch

from experiments.components.data.masking import IGNORED
from experiments.components.data.unpadding import MULTIPLE, SHARE, drawn_length, fillers, unpadded


def test_half_of_the_tokens_are_padding_and_a_fifth_of_the_samples_have_none() -> None:
    assert SHARE * (1 - math.exp(-1 / SHARE)) == pytest.approx(0.5, abs=1e-4)
    draw = random.Random(0)
    lengths = [drawn_length(512, draw) for _ in range(20_000)]
    assert min(lengths) == 1 and max(lengths) == 512
    assert sum(lengths) / len(lengths) == pytest.approx(256.5, abs=3 * 180 / math.sqrt(20_000))  # rounded up; 180: their deviation
    assert sum(length == 512 for length in lengths) / len(lengths) == pytest.approx(math.exp(-511 / (SHARE * 512)), abs=0.01)
    assert [drawn_length(8, random.Random(seed)) for seed in range(5)] == [drawn_length(8, random.Random(seed)) for seed in range(5)]


@pytest.mark.parametrize(("drawn", "tokens"), [(0.0, 1), (0.2, 1), (2.0, 2), (2.2, 3), (7.9, 8), (9.0, 8)])
def test_a_length_is_rounded_up_and_cut(monkeypatch: pytest.MonkeyPatch, drawn: float, tokens: int) -> None:
    draw, rates = random.Random(0), list[float]()
    monkeypatch.setattr(draw, "expovariate", lambda rate: rates.append(rate) or drawn)
    assert drawn_length(8, draw) == tokens and rates == [pytest.approx(1 / (SHARE * 8))]


def test_real_tokens_follow_one_another_and_the_rest_is_a_document_without_labels() -> None:
    tokens = torch.arange(1, 31).view(3, 10)
    labels = tokens + 100
    real = torch.arange(10) < torch.tensor([4, 10, 1])[:, None]
    made = unpadded(tokens, labels, real, pad=0)
    assert made["input_ids"].shape == made["labels"].shape == made["position_ids"].shape == (1, MULTIPLE)
    assert made["input_ids"][0].tolist() == [1, 2, 3, 4, *range(11, 21), 21, *[0] * 49]
    assert made["labels"][0].tolist() == [101, 102, 103, 104, *range(111, 121), 121, *[IGNORED] * 49]
    assert made["position_ids"][0].tolist() == [*range(4), *range(10), 0, *range(49)]
    assert made["starts"].tolist() == [0, 4, 14, 15, 64] and made["starts"].dtype == torch.int32


def test_a_whole_multiple_is_not_filled_up() -> None:
    tokens = torch.ones(2, 32, dtype=torch.int64)
    made = unpadded(tokens, tokens, torch.ones_like(tokens, dtype=torch.bool), pad=0)
    assert made["input_ids"].shape == (1, 64) and made["starts"].tolist() == [0, 32, 64, 64]
    assert made["input_ids"].min() == 1


@pytest.mark.parametrize(
    ("lengths", "starts"),
    [
        ([4, 10, 1], [0, 4, 14, 15, 25, 35, 35, 35]),  # 20 are missing
        ([10, 10, 1], [0, 10, 20, 21, 31, 35, 35, 35]),  # 14: one filler of 10, one of 4
        ([1, 1, 1], [0, 1, 2, 3, 13, 23, 33, 35]),  # 32, in all four
        ([5, 10, 10, 10], [0, 5, 15, 25, 35, 35, 35, 35, 35]),  # none
        ([10, 10, 10, 6], [0, 10, 20, 30, 36, 46, 56, 66, 70]),  # 34: the most
    ],
)
def test_what_is_missing_to_a_larger_multiple_is_in_as_many_documents_whatever_it_is(lengths: list[int], starts: list[int]) -> None:
    """So the shapes of a batch depend on its number of samples and its rounded number of tokens alone."""
    tokens = torch.arange(1, 11).repeat(len(lengths), 1)
    real = torch.arange(10) < torch.tensor(lengths)[:, None]
    made = unpadded(tokens, tokens, real, pad=0, multiple=35, longest=10)
    assert made["starts"].tolist() == starts and fillers(35, 10) == 4
    assert made["input_ids"].shape == made["position_ids"].shape == made["labels"].shape == (1, starts[-1])
    assert (made["labels"][0] != IGNORED).sum() == (made["input_ids"][0] != 0).sum() == sum(lengths)
    ends = made["starts"].diff().tolist()
    assert made["position_ids"][0].tolist() == [place for length in ends for place in range(length)]


@pytest.mark.parametrize(("multiple", "longest", "documents"), [(64, 64, 1), (64, 512, 1), (512, 512, 1), (513, 512, 2), (2048, 512, 4)])
def test_fillers_hold_all_that_can_be_missing(multiple: int, longest: int, documents: int) -> None:
    assert fillers(multiple, longest) == documents and documents * longest >= multiple - 1
