"""Messages and stubs generated from protos/specgrove/v1 at build time (`make proto`); read by rpc/ and client/ only."""
