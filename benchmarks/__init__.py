"""Figures beside the raw engines, measured in the same run, as ratios: machines differ and are noisy."""

import os

os.environ.setdefault(
    "COMMONPLACE_EMBEDDER", "static"
)  # a figure is of the same vectors wherever it is measured
