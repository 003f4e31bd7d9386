"""What jobs do with rows, as functions over DataFrames: decode, check, look up, and lose none on the way."""

from ottla.pipeline.rows.checked import Checked, checked, labelled
from ottla.pipeline.rows.decode_json import from_json, to_json

__all__ = ["Checked", "checked", "from_json", "labelled", "to_json"]
