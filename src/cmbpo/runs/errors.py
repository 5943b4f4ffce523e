"""What can go wrong with a run, each in one sentence for its user."""


class RunError(ValueError):
    """What went wrong with a run, in one sentence for its user."""


class DamagedError(RunError):
    """A file that was read, but does not hold what was once written to it."""


class NonFiniteError(RunError):
    """A quantity that became infinite or not a number."""


class UnlikeError(RunError):
    """A checkpoint of other arrays than those that are to be filled."""
