"""The example of a Prefect automation in docs/nights.md is one, for the event that nights emit."""

from __future__ import annotations

import re

from prefect.events import AutomationCore, Event, EventTrigger, Resource

from experiments.config.paths import REPOSITORY
from flows.runtime.events import REGRESSED


def example() -> AutomationCore:
    import yaml

    [text] = re.findall(r"```yaml\n(name: A cell.*?)```", (REPOSITORY / "docs" / "nights.md").read_text(), re.DOTALL)
    return AutomationCore.model_validate(yaml.safe_load(text))


def test_the_example_expects_the_event_of_a_regressed_cell() -> None:
    trigger = example().trigger
    assert isinstance(trigger, EventTrigger) and trigger.expect == {REGRESSED}
    resource = Resource.model_validate({"prefect.resource.id": "sweepbench.cell.0123456789abcdef"})
    assert trigger.match.matches(resource)
    assert Event(event=REGRESSED, resource=resource).event in trigger.expect
