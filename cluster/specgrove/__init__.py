"""specgrove: distributed multi-model serving with speculative decoding. Output is always the target's own."""

__version__ = "0.1.0"
