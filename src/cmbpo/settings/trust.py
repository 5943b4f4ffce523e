"""What the settings of a run may ask for only if whoever opens it trusts them.

A run folder may come from somebody else. Its settings can name a module, which runs when it is
imported, another folder to read, and a service to send the records to.
"""

from cmbpo.settings.schema import TrainSettings

IN_PYTHON = "python:"
"""What the `env_id` of a run begins with whose environment was handed over in Python."""
ASKING = ("algo", "env_id", "init_from", "wandb")
"""The settings that can ask for more than the run folder itself."""

_HOW = "if you trust it, say so with --trust (in Python: trust=True)"


def require_for_acting(settings: TrainSettings) -> None:
    """Refuse settings of somebody else's whose environment is not a task and not installed."""
    if module := _module(settings.env_id):
        raise ValueError(
            f"this run asks to import the module {module!r} (its env_id is {settings.env_id!r}),"
            f" which runs the code in it; {_HOW}"
        )


def require_for_training(settings: TrainSettings) -> None:
    """Refuse settings of somebody else's that ask for more than their own run folder."""
    require_for_acting(settings)
    if settings.init_from is not None:
        raise ValueError(f"this run asks to read another, {settings.init_from!r}; {_HOW}")
    if settings.wandb:
        raise ValueError(
            f"this run asks to send its records to Weights & Biases (wandb is true); {_HOW}"
        )


def flag_for_acting(settings: TrainSettings) -> str:
    """What `cmbpo evaluate RUN` needs behind it: ` --trust`, or nothing."""
    return " --trust" if ":" in settings.algo or _module(settings.env_id) else ""


def flag_for_training(settings: TrainSettings) -> str:
    """What `cmbpo train --resume RUN` needs behind it: ` --trust`, or nothing."""
    asks = settings.init_from is not None or settings.wandb
    return " --trust" if asks else flag_for_acting(settings)


def _module(env_id: str) -> str:
    """The module that is imported to make an environment; empty where the id names none."""
    return "" if env_id.startswith(IN_PYTHON) else env_id.rpartition(":")[0]
