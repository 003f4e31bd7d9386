"""PURE: columns, names and rows of tables as fields of records, and back."""
