"""Thin Ray shells around state, target and draft."""
