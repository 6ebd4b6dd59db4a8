"""Synthetic text (`dataset: drawn-text`): documents of an invented language with summaries, in Parquet, and a tokenizer trained on them.

Every row is a function of (seed, split, row number) alone. The columns are `text` and `summary`. Word frequencies follow Zipf's law, as in
natural text. Each document has a few topic words; its summary is the sentences with most of them, in their order.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator
from functools import cache, partial
from itertools import accumulate
from pathlib import Path

from experiments.atomic_file import atomic_file
from experiments.datasets.parquet_writer import write_tokenizer

GENERATOR = 1  # raise it when the same arguments no longer give the same rows: it is part of the fingerprint
COLUMNS = ("text", "summary")
VOCABULARY = 4096
SPECIAL_TOKENS = ("<pad>", "</s>", "<unk>", "<s>", "<mask>")  # the first three have the ids that T5 gives them
LAST = "tokenizer"  # what `build` writes last: where it is there, the set is complete
TEMPLATE = "$A </s>"
WORDS = 8192  # of the language
WORDS_OF_A_DOCUMENT = (500, 900)  # news articles have about 700
WORDS_OF_A_SENTENCE = (6, 18)
TOPICS, TOPIC_SHARE = 6, 0.2
SENTENCES_OF_A_SUMMARY = 3
ROWS_PER_GROUP = 512


def fingerprint(*, rows: int, validation_rows: int, seed: int) -> str:
    """16 hex digits: changes with the generator's version and with every argument of `build`."""
    return hashlib.sha256(json.dumps(["texts", GENERATOR, rows, validation_rows, seed]).encode()).hexdigest()[:16]


def build(directory: Path, *, rows: int, validation_rows: int, seed: int) -> None:
    """Write train.parquet, validation.parquet and tokenizer/tokenizer.json to `directory`. Each file appears complete or not at all.

    Raises ValueError for row counts below 1.
    """
    if min(rows, validation_rows) < 1:
        raise ValueError(f"cannot generate {rows} + {validation_rows} rows of text")
    directory.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", rows), ("validation", validation_rows)):
        atomic_file(directory / f"{split}.parquet", partial(_write_parquet, split=split, count=count, seed=seed))
    documents = (document(seed, "train", row)[0] for row in range(min(rows, ROWS_PER_GROUP)))
    write_tokenizer(directory, documents, vocabulary=VOCABULARY, special=SPECIAL_TOKENS, template=TEMPLATE)


def document(seed: int, split: str, row: int) -> tuple[str, str]:
    """(text, summary) of one row. The text has about WORDS_OF_A_DOCUMENT words, the summary SENTENCES_OF_A_SUMMARY of its sentences."""
    draw = random.Random(f"{GENERATOR}/{seed}/{split}/{row}")
    words, weights = _language()
    topics = draw.sample(words[len(words) // 16 :], TOPICS)  # no everyday words
    length, used = draw.randint(*WORDS_OF_A_DOCUMENT), 0
    sentences: list[tuple[int, str]] = []
    while used < length:
        sentence = draw.choices(words, cum_weights=weights, k=draw.randint(*WORDS_OF_A_SENTENCE))
        about = 0
        for at in range(len(sentence)):
            if draw.random() < TOPIC_SHARE:
                sentence[at] = draw.choice(topics)
                about += 1
        used += len(sentence)
        sentences.append((about, " ".join(sentence).capitalize() + "."))
    best = sorted(sorted(range(len(sentences)), key=lambda at: -sentences[at][0])[:SENTENCES_OF_A_SUMMARY])
    return " ".join(text for _, text in sentences), " ".join(sentences[at][1] for at in best)


@cache
def _language() -> tuple[list[str], list[float]]:
    """Words, the frequent ones first and shorter, and their cumulative weights by Zipf's law with Mandelbrot's shift."""
    draw = random.Random(f"language/{GENERATOR}")
    syllables = [start + vowel + end for start in "bdfgklmnprstvz" for vowel in "aeiou" for end in ("", "n", "r", "s")]
    words: dict[str, None] = {}
    while len(words) < WORDS:
        most = 1 if len(words) < 64 else 2 if len(words) < 1024 else 4
        words["".join(draw.choices(syllables, k=draw.randint(1, most)))] = None
    return list(words), list(accumulate(1 / (rank + 2.7) for rank in range(1, WORDS + 1)))


def _write_parquet(path: Path, split: str, count: int, seed: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(name, pa.string()) for name in COLUMNS])
    with pq.ParquetWriter(path, schema) as writer:
        for rows in _batches(count):
            documents = [document(seed, split, row) for row in rows]
            writer.write_table(pa.table([pa.array(column) for column in zip(*documents, strict=True)], schema=schema))


def _batches(count: int) -> Iterator[range]:
    for start in range(0, count, ROWS_PER_GROUP):
        yield range(start, min(count, start + ROWS_PER_GROUP))
