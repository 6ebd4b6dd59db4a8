"""Credentials are recognised, and what only looks like them is not."""

from __future__ import annotations

import pytest

from experiments.config.credentials import credentials_in, names_secret


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("s3://KEY:SECRET@bucket/folder", "holds a user name or password"),
        ("https://me@host/file", "holds a user name or password"),
        ("postgres://u:p@db/name", "holds a user name or password"),
        ("s3://bucket/folder?region=eu&session_token=abc", "holds credentials in its query"),
        ("s3://bucket?secret_key=x", "holds credentials in its query"),
        ("https://host/file?X-Amz-Signature=ab12", "holds credentials in its query"),
        ("https://host/file?sv=1&sig=ab12", "holds credentials in its query"),
        ("AKIA" + "A1" * 8, "holds an access key"),
        ("a folder of hf_" + "a" * 30, "holds an access key"),
    ],
)
def test_credentials_are_named_and_not_repeated(text: str, problem: str) -> None:
    assert credentials_in(text) == problem


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/folder?region=eu-west-1&endpoint_override=localhost:9000",
        "hf://datasets/OWNER/NAME@" + "0" * 40 + "/folder",
        "hf://NAME@" + "0" * 40,
        "git+ssh://git@host/owner/name",
        "/data/me@work/images",
        "drawn",
        "s3://bucket/token=5/part",
        "AKIA" + "A1" * 7,
        "hf_" + "a" * 29,
    ],
)
def test_addresses_without_credentials_pass(text: str) -> None:
    assert credentials_in(text) is None


def test_variables_that_hold_a_secret_by_their_name() -> None:
    secret = ["WANDB_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "PGPASSWD", "my_key", "BASIC_AUTH"]
    assert all(map(names_secret, secret))
    plain = ["PT_HPU_LAZY_MODE", "OMP_NUM_THREADS", "KEYBOARD", "MONKEY", "LD_PRELOAD", "NCCL_P2P_DISABLE"]
    assert not any(map(names_secret, plain))
