"""What jobs do with rows, as functions over DataFrames: decode, check, look up, and lose none on the way."""

from ottla.pipeline.rows.checked import Checked, checked

__all__ = ["Checked", "checked"]
