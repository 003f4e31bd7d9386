"""PURE: record batches, format 2: headers, records, compression, control records."""
