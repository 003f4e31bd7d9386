"""Files, here and in object stores: CSV, JSON lines and Parquet in, JSON lines and Parquet out."""
