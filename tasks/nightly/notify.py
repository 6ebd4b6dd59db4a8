"""A night's one message, through Prefect's notification blocks: webhook, Slack, Teams, e-mail and any other that Prefect has."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from typing import Any

from prefect.blocks.abstract import NotificationBlock
from prefect.blocks.core import Block
from prefect.blocks.webhook import Webhook

from experiments.config.error_text import first_line


class NotifyError(Exception):
    """A block is missing, is of the wrong kind, or its service did not take the message; the text says which."""


def send(name: str, subject: str, body: str) -> None:
    """Send through one block, such as `slack-webhook/team`. Raises NotifyError."""
    try:
        block = _now(Block.load(name))
    except ValueError as error:
        raise NotifyError(
            f"notification block {name} cannot be loaded ({first_line(error)}); `prefect block ls` shows those there are"
        ) from error
    try:
        if isinstance(block, NotificationBlock):
            with block.raise_on_failure():
                _now(block.notify(body, subject))
        elif isinstance(block, Webhook):
            _now(block.call({"subject": subject, "text": body})).raise_for_status()
        else:
            raise NotifyError(f"block {name} is a {type(block).__name__}, which sends no notifications")
    except NotifyError:
        raise
    except Exception as error:
        raise NotifyError(f"block {name} did not take the message ({type(error).__name__}: {first_line(error)})") from error


def send_all(names: Sequence[str], done: Sequence[str], subject: str, body: str) -> tuple[list[str], list[str]]:
    """Send through each block of `names` that is not in `done`. Returns the blocks that have it now, and a sentence for each failure."""
    sent, problems = list(done), []
    for name in names:
        if name in sent:
            continue
        try:
            send(name, subject, body)
            sent.append(name)
        except NotifyError as error:
            problems.append(str(error))
    return sent, problems


def _now(value: Any) -> Any:
    """The result of a call that is a coroutine where a loop runs, and the result itself elsewhere."""
    return asyncio.run(_wait(value)) if inspect.isawaitable(value) else value


async def _wait(value: Any) -> Any:
    return await value
