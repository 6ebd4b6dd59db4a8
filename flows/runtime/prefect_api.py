"""Whether Prefect's API answers: a sweep goes on without it, and must not wait a minute for each picture that it would take."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from experiments.config.error_text import first_line
from experiments.config.errors import UserError

_ASK_S = 10.0  # for an answer, at most, while a sweep runs: a trial's end waits for it, and what a busy server is not asked to keep is lost
_START_ASK_S = 20.0  # before it starts: a server that has just been started may be busy
_OF_SERVERS = ("httpx", "httpcore", "anyio", "prefect")  # packages whose errors are about a server
_away = False  # Prefect did not answer when this process's flow ended


class PrefectAway(UserError):
    """Prefect's API does not answer, and no flow can begin without it."""


def problem() -> str | None:
    """What is wrong with Prefect's API; None where it answers, if only with a refusal, and where no address is set."""
    from prefect.settings import PREFECT_API_URL

    url = PREFECT_API_URL.value()
    return None if url is None else _problem_at(str(url), _ASK_S)


def check(url: str) -> None:
    """Raises PrefectAway if no API answers at `url`, such as http://127.0.0.1:4200/api."""
    if problem_there := _problem_at(url, _START_ASK_S):
        raise PrefectAway(f"PREFECT_API_URL: {problem_there}; start it, or unset the variable: then this command starts one of its own")


@contextmanager
def not_needed_at_the_end(ended: Callable[[], bool], say: Callable[[str], object]) -> Iterator[None]:
    """Run a command's flow inside the block. Where Prefect fails to record its end, that is said; the block ends well if it has `ended`.

    Raises PrefectAway where the flow did not come to its end and Prefect does not answer, or the UserError that ended the flow.
    """
    global _away  # noqa: PLW0603 - read at this process's end
    logging.raiseExceptions = False  # else Prefect writes to the terminal for each batch of its log that it could not send
    try:
        yield
    except Exception as error:
        why = problem()
        _away = why is not None
        if ended():
            say(f"Prefect did not record how its flow run ended ({why or _line(error)}); the sweep's results are complete without it")
        elif isinstance(cause := _cause(error), UserError):
            raise cause from None
        elif why is not None:
            said = f"; the flow ended with {_line(cause)}" if cause is not None else ""
            raise PrefectAway(f"Prefect: {why}{said}; go on with the sweep once Prefect answers") from error
        else:
            raise


def _cause(error: BaseException) -> BaseException | None:
    """What ended a flow, before Prefect's client failed to say so: the first error in the chain that is not about a server."""
    chain: BaseException | None = error
    while chain is not None:
        if not isinstance(chain, OSError) and type(chain).__module__.partition(".")[0] not in _OF_SERVERS:
            return chain
        chain = chain.__cause__ or chain.__context__
    return None


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {first_line(error, empty='no message')}"


def leave(status: int) -> NoReturn:
    """End the command. Where Prefect did not answer at its flow's end, at once: its threads try for minutes to send what they hold."""
    if _away:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        os._exit(status)
    sys.exit(status)


def _problem_at(url: str, timeout_s: float) -> str | None:
    import urllib.error  # which commands that ask nobody do without
    import urllib.request

    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/health", timeout=timeout_s):  # noqa: S310 - the user's own setting
            return None
    except urllib.error.HTTPError:
        return None  # it answers: what it refuses is for its client to say
    except ValueError:
        return f"{url!r} is no URL, such as http://127.0.0.1:4200/api"
    except OSError as error:
        reason = getattr(error, "reason", error)
        return f"{url} does not answer ({getattr(reason, 'strerror', None) or reason})"
