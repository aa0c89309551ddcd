"""The OpenAI-compatible HTTP door over a core.protocols.Backend."""

from specgrove.http.app import create_app

__all__ = ["create_app"]
