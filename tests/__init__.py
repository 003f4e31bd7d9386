"""Ottla's tests; `tests.support` holds what they share."""
