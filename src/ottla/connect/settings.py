"""Settings of a connector: a pydantic model, from which validation, documentation and `--help` are made.

A field's name with dots for underscores is the setting's name: `table_include_list` is `table.include.list`.
Values come as strings, as Connect's JSON has them, or as JSON's own types.
"""

import re
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticUndefined

from ottla.connect.patterns import compiled

__all__ = ["CommaList", "Expressions", "Importance", "SecretStr", "Settings", "setting"]

Importance = Literal["high", "medium", "low"]


def _split(value: object) -> object:
    return [part for part in (piece.strip() for piece in value.split(",")) if part] if isinstance(value, str) else value


CommaList = Annotated[list[str], BeforeValidator(_split)]
"""`a, b,c` in a configuration, a list of str in Python."""


def _expressions(patterns: list[str]) -> list[str]:
    for pattern in patterns:
        try:
            compiled(pattern, any_case=True)
        except re.error as error:
            raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
    return patterns


Expressions = Annotated[CommaList, AfterValidator(_expressions)]
"""Regular expressions with commas in between; each has to fit the whole name, in any case of letters."""


class Settings(BaseModel):
    """Base of every connector's model. Frozen; unknown settings are left to the runtime, which warns of them.

    Passwords are `SecretStr`. Rules over several fields are pydantic's `model_validator(mode="after")`; raise
    ValueError with a sentence.

    open_names: beginnings of names, with something in them that is free, of settings that a validator of mode "wrap"
    or "before" reads.
    """

    open_names: ClassVar[tuple[str, ...]] = ()

    model_config = ConfigDict(
        alias_generator=lambda name: name.replace("_", "."),
        populate_by_name=True,
        frozen=True,
        extra="ignore",
        hide_input_in_errors=True,
        arbitrary_types_allowed=True,
        coerce_numbers_to_str=True,
    )

    @field_validator("*", mode="before")
    @classmethod
    def _not_blank(cls, value: object, info: ValidationInfo) -> object:
        """A required setting that is blank counts as missing, except for a password."""
        if isinstance(value, str) and not value.strip() and info.field_name is not None:
            field = cls.model_fields[info.field_name]
            if field.is_required() and field.annotation is not SecretStr:
                raise ValueError("String must be non-empty")
        return value


def setting(
    doc: str,
    default: Any = PydanticUndefined,
    *,
    importance: Importance = "medium",
    group: str | None = None,
    display: str | None = None,
    name: str | None = None,
    choices: Callable[[], list[str]] | list[str] | None = None,
    **constraints: Any,
) -> Any:
    """A field of a `Settings`.

    doc: one or two sentences with the unit. default: none given makes it required. display: its label in consoles.
    name: where it is not the field's with dots. choices: what consoles offer. constraints: pydantic's (ge, pattern).
    """
    if name is not None:
        constraints["alias"] = name
    field: Any = Field(default, description=doc, **constraints)
    field.metadata.append(SettingFacts(importance, group, display, choices))
    return field


class SettingFacts:
    """What consoles show of a setting, beside its type, default and doc."""

    def __init__(
        self,
        importance: Importance = "medium",
        group: str | None = None,
        display: str | None = None,
        choices: Callable[[], list[str]] | list[str] | None = None,
    ) -> None:
        self.importance: Importance = importance
        self.group = group
        self.display = display
        self._choices = choices

    @property
    def choices(self) -> list[str]:
        """What consoles offer; [] for anything."""
        return self._choices() if callable(self._choices) else list(self._choices or ())
