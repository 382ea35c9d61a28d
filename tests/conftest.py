"""For all tests: the same examples in every run, however slow the machine is."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]

# A run must not fail by the luck of the draw; to look for new examples: pytest --hypothesis-profile=search
settings.register_profile("steady", deadline=None, derandomize=True, suppress_health_check=SLOW)
settings.register_profile("search", deadline=None, max_examples=1000, suppress_health_check=SLOW)
settings.load_profile("steady")
