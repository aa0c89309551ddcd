"""gRPC: the wire form of core values, the servers and the clients."""
