"""Figures beside the raw engines, measured in the same run, as ratios: machines differ and are noisy."""
