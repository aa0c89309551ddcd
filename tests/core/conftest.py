"""Examples of hypothesis are not timed: a busy machine is not a finding."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
