"""The pages of the console, one module for each group of them; `Pages` is what they share."""
