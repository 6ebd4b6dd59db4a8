"""Whether Prefect's API answers: a sweep goes on without it, and must not wait a minute for each picture that it would take."""

from __future__ import annotations

import urllib.error
import urllib.request

ASK_S = 2.0  # for an answer, at most: a trial's end waits for it


def problem() -> str | None:
    """What is wrong with Prefect's API; None where it answers, if only with a refusal, and where no address is set."""
    from prefect.settings import PREFECT_API_URL

    url = PREFECT_API_URL.value()
    return None if url is None else problem_at(str(url))


def problem_at(url: str) -> str | None:
    """What is wrong with the API at `url`, such as http://127.0.0.1:4200/api; None if it answers. Takes ASK_S seconds at most."""
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/health", timeout=ASK_S):  # noqa: S310 - the user's own setting
            return None
    except urllib.error.HTTPError:
        return None  # it answers: what it refuses is for its client to say
    except ValueError:
        return f"{url!r} is no URL, such as http://127.0.0.1:4200/api"
    except OSError as error:
        reason = getattr(error, "reason", error)
        return f"{url} does not answer ({getattr(reason, 'strerror', None) or reason})"
