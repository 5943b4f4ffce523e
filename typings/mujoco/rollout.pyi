# MuJoCo's compiled modules carry no types: every name of it is Any.
from typing import Any

def __getattr__(name: str) -> Any: ...
