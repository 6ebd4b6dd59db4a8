"""The base of every model that is written to or read from a file: unknown keys and loose types are errors."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """Rejects unknown fields and never converts between types ("3" is not 3); instances cannot be changed."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, ser_json_inf_nan="strings")
