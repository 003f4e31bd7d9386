"""PURE: values of records in the formats of other systems."""
