"""`ottla demo`: real flights through the log and Spark, and out again."""
