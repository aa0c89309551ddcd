"""Settings for all tests."""

from hypothesis import HealthCheck, settings

# The two cores are shared, so wall-clock limits of single examples would fail by chance.
settings.register_profile("shared-cores", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared-cores")
