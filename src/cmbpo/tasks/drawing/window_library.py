"""The library that windows are opened with, named before anybody looks for it."""

import importlib.util
import os
import sys
from pathlib import Path

VARIABLE = "PYGLFW_LIBRARY"


def name() -> None:
    """Let glfw, which MuJoCo imports, take the library that it comes with.

    It would look for others and start another Python for each, to ask its version: that one prints
    a traceback if a command is interrupted meanwhile.
    """
    if sys.platform != "linux" or VARIABLE in os.environ:
        return
    spec = importlib.util.find_spec("glfw")
    kind = os.environ.get("PYGLFW_LIBRARY_VARIANT", os.environ.get("XDG_SESSION_TYPE", "")).lower()
    for place in (spec and spec.submodule_search_locations) or ():
        library = Path(place) / ("wayland" if kind == "wayland" else "x11") / "libglfw.so"
        if library.exists():
            os.environ[VARIABLE] = str(library)
