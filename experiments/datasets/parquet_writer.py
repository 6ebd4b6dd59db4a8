"""The tokenizer of a synthetic data set, trained on its texts and written last."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from experiments.atomic_file import atomic_file


def write_tokenizer(directory: Path, texts: Iterable[str], *, vocabulary: int, special: Sequence[str], template: str) -> None:
    """Train a tokenizer on `texts` and write it to tokenizer/tokenizer.json in `directory`.

    Call it after the set's other files are written. The folder appears in one step, so where it exists, the set is complete.
    Byte-level BPE of at most `vocabulary` tokens, so no text is unknown. `special` tokens get the ids 0, 1, ...; `template` says where
    they stand around a text, in the syntax of tokenizers' TemplateProcessing.
    """
    folder = directory / f".tokenizer.{os.getpid()}.tmp"
    folder.mkdir(exist_ok=True)
    atomic_file(folder / "tokenizer.json", partial(_train, texts, vocabulary=vocabulary, special=special, template=template))
    shutil.rmtree(directory / "tokenizer", ignore_errors=True)
    folder.replace(directory / "tokenizer")


def _train(texts: Iterable[str], path: Path, *, vocabulary: int, special: Sequence[str], template: str) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    used = [(name, number) for number, name in enumerate(special) if name in template.split()]
    tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=used)
    tokenizer.save(str(path))
