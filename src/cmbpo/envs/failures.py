"""What goes wrong in an environment of the user's own."""


class EnvironmentFailure(Exception):  # noqa: N818
    """Anything wrong in the user's environment, in whole sentences."""
