"""All families of the campaign, the slow ones first."""

from chaos import file_operations

ALL = (*file_operations.FAMILIES,)
