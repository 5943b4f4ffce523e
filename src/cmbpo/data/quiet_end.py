"""How loud a policy's noise is: a run ends with hardly any, so that its limit holds without it too.

A limit is held for the policy that acts in training. Without its noise the same policy is another
one: a cheetah runs 5 % faster, into what it kept clear of.
"""

QUIET = 0.1
"""What is left of the deviation at the end."""


def noise(env_steps: int, *, total_steps: int, quiet_end: float) -> float:
    """The factor on the deviation of the actions after so many real steps.

        QUIETᵉ,   e = clip((t/T − (1 − q)) / q, 0, 1)

    It is 1 until the share q = `quiet_end` of all steps is left. From there it falls by as much in
    each step, so that a controller of the cost has as long for each halving.
    """
    if quiet_end == 0.0:
        return 1.0
    begun = (env_steps / total_steps - (1.0 - quiet_end)) / quiet_end
    return QUIET ** min(max(begun, 0.0), 1.0)
