"""Keeps Serve's listeners on loopback in the Ray that we start ourselves.

Serve binds its HTTP port to the host that we ask for, but gRPC and HAProxy's own pages always to all interfaces. This
is installed as `worker_process_setup_hook`, so it runs in every worker process before Serve does. On clusters that
others have started, who may reach those ports is a matter of their network policy.
"""

from __future__ import annotations

import re

_ANY_ADDRESS = re.compile(r"bind \*?:\{\{ config\.(metrics|stats)_port")


def install() -> None:
    """Bind to 127.0.0.1 what Serve would bind to all interfaces. Does nothing where Serve has changed its inside."""
    try:
        from ray.serve._private import default_impl, haproxy, haproxy_templates
    except ImportError:
        return
    bind = getattr(default_impl, "add_grpc_address", None)
    if bind is not None:

        def add_grpc_address(grpc_server: object, server_address: str) -> None:
            bind(grpc_server, server_address.replace("[::]:", "127.0.0.1:"))

        default_impl.add_grpc_address = add_grpc_address
    for module in (haproxy_templates, haproxy):
        for name, text in list(vars(module).items()):
            if name.isupper() and isinstance(text, str) and "frontend" in text:
                setattr(module, name, _ANY_ADDRESS.sub(r"bind 127.0.0.1:{{ config.\1_port", text))
