"""What all tests have in common."""

from hypothesis import settings

settings.register_profile("ottla", deadline=None)  # how long an example takes says more of the machine than of the code
settings.load_profile("ottla")
