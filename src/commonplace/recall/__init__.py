"""Recall: finding what was remembered and said, by whoever may see it."""
