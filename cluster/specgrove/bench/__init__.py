"""Measurements on real models, side by side in one run: ratios, never absolute times."""
