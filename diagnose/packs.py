"""Finds and loads the two packs, `parsers/` and `rules/`: built in, or folders that the user names.

A pack is loaded by path, under a private module name, so that a folder called `parsers` in the working directory or
on PYTHONPATH can never take its place. In a checkout the packs lie beside the package, in a wheel inside it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import diagnose


def builtin(name: str) -> Path:
    """Folder of the built-in pack `name` ('parsers' or 'rules'); FileNotFoundError when the installation is broken."""
    package = Path(diagnose.__file__).resolve().parent
    for folder in (package.parent / name, package / name):
        if folder.is_dir() and (folder.parent != package.parent or (package.parent / "pyproject.toml").is_file()):
            return folder
    raise FileNotFoundError(f"the built-in pack '{name}' is missing beside {package}: reinstall nccl-diagnose")


def load_parsers(folders: tuple[Path, ...] = ()) -> list[ModuleType]:
    """Parser modules of the built-in pack and of `folders`, sorted by KIND; a later folder replaces a KIND.

    A parser is `<kind>.py` or a package `<kind>/__init__.py`; names that start with `_` are private.
    A parser that cannot be imported raises ImportError naming the file.
    """
    found: dict[str, ModuleType] = {}
    for folder in (builtin("parsers"), *folders):
        if not folder.is_dir():
            raise FileNotFoundError(f"no parser folder at {folder}")
        for entry in sorted(folder.iterdir()):
            if entry.name.startswith((".", "_")):
                continue
            file = entry if entry.suffix == ".py" else entry / "__init__.py"
            if file.is_file():
                module = _load(file, folder)
                found[module.KIND] = module
    return [found[kind] for kind in sorted(found)]


def _load(file: Path, folder: Path) -> ModuleType:
    is_package = file.name == "__init__.py"
    stem = file.parent.name if is_package else file.stem
    tag = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]
    name = f"_diagnose_pack_{tag}_{stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(
        name, file, submodule_search_locations=[str(file.parent)] if is_package else None
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load parser {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, KeyboardInterrupt):
            raise
        raise ImportError(f"parser {file} cannot be loaded: {type(error).__name__}: {error}") from error
    for needed in _needed(module):
        if not hasattr(module, needed):
            del sys.modules[name]
            raise ImportError(f"parser {file} defines no {needed}")
    return module


def _needed(module: ModuleType) -> tuple[str, ...]:
    """Names a parser must define: those for text, or those for binary files."""
    binary = hasattr(module, "sniff_bytes")
    return (
        ("KIND", "TOPICS", "sniff_bytes", "scan_bytes", "render_bytes", "line_count")
        if binary
        else ("KIND", "TOPICS", "sniff", "parse")
    )


def load_file(file: Path) -> ModuleType:
    """One parser by its file, in a process that needs no other."""
    return _load(file, file.parent.parent if file.name == "__init__.py" else file.parent)
