"""All families of the campaign, the slow ones first."""

from chaos import environments, file_operations, full_disk, rivals, words

ALL = (
    *environments.FAMILIES,
    *file_operations.FAMILIES,
    *full_disk.FAMILIES,
    *rivals.FAMILIES,
    *words.FAMILIES,
)
