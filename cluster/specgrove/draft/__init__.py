"""The draft replica: sessions of many targets, drafted level by level in shared forward passes."""
