"""Imports one module of `kubernetes_asyncio` without the package around it; used by `oidc`.

`import kubernetes_asyncio` loads some 800 generated API models (0.25 s and 40 MiB) that nothing here uses. A module is
found through the `__path__` of its packages alone, so empty packages with that path stand in while it is imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType


def lean_import(name: str) -> ModuleType:
    """The module of that full name, such as `kubernetes_asyncio.config.openid`, with what it imports itself.

    Nothing of it stays in `sys.modules`, so that whoever imports the whole package later gets the whole package.

    Raises:
        ImportError: The installed version of the library has no such module.
    """
    root, *_ = parts = name.split(".")
    if root in sys.modules:
        return importlib.import_module(name)
    try:
        for package in accumulate(parts[:-1], "{}.{}".format):
            sys.modules[package] = _stand_in(package)
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{root} has no usable module {name} in the installed version: {error}") from error
    finally:
        for loaded in [each for each in sys.modules if each == root or each.startswith(f"{root}.")]:
            del sys.modules[loaded]


def _stand_in(package: str) -> ModuleType:
    """The package with its `__path__`, its own code not run."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    return importlib.util.module_from_spec(spec)
