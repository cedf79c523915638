"""Run state: what a run knows right now, who of its agents may see which part, and how it came about."""
