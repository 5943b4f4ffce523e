"""All families of the campaign, the slow ones first."""

from chaos import (
    damage,
    environments,
    experiments,
    file_operations,
    full_disk,
    hostile,
    planted,
    rivals,
    signals,
    words,
)

ALL = (
    *experiments.FAMILIES,
    *signals.FAMILIES,
    *planted.FAMILIES,
    *environments.FAMILIES,
    *file_operations.FAMILIES,
    *full_disk.FAMILIES,
    *rivals.FAMILIES,
    *damage.FAMILIES,
    *hostile.FAMILIES,
    *words.FAMILIES,
)
