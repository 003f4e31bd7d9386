"""`ottla serve --cores`: several brokers as one unit."""
