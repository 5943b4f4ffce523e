"""All families of the campaign, the slow ones first."""

from chaos import damage, environments, file_operations, full_disk, hostile, rivals, words

ALL = (
    *damage.FAMILIES,
    *environments.FAMILIES,
    *file_operations.FAMILIES,
    *full_disk.FAMILIES,
    *hostile.FAMILIES,
    *rivals.FAMILIES,
    *words.FAMILIES,
)
