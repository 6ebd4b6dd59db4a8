"""Credentials in what a user writes. Values of parameters and of pools stand in plans, reports, MLflow and logs, so none may be there."""

from __future__ import annotations

import re

# scheme://user:password@host. In an hf:// address an @ comes before a revision; git@ is everybody's user name for ssh
_USER = re.compile(r"(?<!\bhf)://(?!git@)[^/\s@?#]*@")
_QUERY = re.compile(
    r"[?&;](?:[\w-]*(?:secret|token|passw(?:or)?d|signature|credential)[\w-]*|access_key(?:_id)?|api_?key|key|sig|auth)=[^&\s]",
    re.IGNORECASE,
)
# Keys whose issuers gave them a form of their own: AWS, GitHub, Hugging Face, OpenAI and Anthropic, Slack, Google
_KEYS = re.compile(
    r"\b(?:(?:AKIA|ASIA)[0-9A-Z]{16}|gh[pousr]_\w{36}|github_pat_\w{22}|hf_[A-Za-z]{30}|sk-[\w-]{32}|xox[abprs]-[\w-]{10}|AIza[\w-]{35})"
)
_NAMES = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|PRIVATE|AUTH(?!OR)|(?:API|ACCESS|ACCOUNT|LICENSE|_)_?KEY", re.IGNORECASE)

HINT = "give it to the machines that read it, as AWS_SECRET_ACCESS_KEY or a role: what is written here is shown and logged"


def credentials_in(text: str) -> str | None:
    """What credentials a value holds, as the problem of an error message that does not repeat them; None if it holds none."""
    if _USER.search(text):
        return "holds a user name or password"
    if _QUERY.search(text):
        return "holds credentials in its query"
    return "holds an access key" if _KEYS.search(text) else None


def names_secret(variable: str) -> bool:
    """Whether an environment variable holds a secret by its name, as WANDB_API_KEY does."""
    return bool(_NAMES.search(variable))
