"""Arithmetic on measurements: which tree pays, how large, and whether to speculate at all. Pure."""
