"""Plain data out of untrusted bytes: pickles without any class, and JSON. For binary parsers, inside a bounded child.

A pickle is read by an unpickler that refuses every class and every persistent id, so that nothing but dictionaries,
lists, tuples, text, numbers, booleans and None can come out. Files that end in the middle give what came before.
"""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import struct
from typing import Any, NoReturn

MAX_DIGITS = 400
"""Longer whole numbers are read as None."""


class NotPlain(ValueError):
    """The bytes are no plain data: damaged, or they ask for a class."""


class _Refusing(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise NotPlain(f"asks for the class {module_name}.{global_name}"[:200])

    def persistent_load(self, pid: Any, /) -> NoReturn:
        raise NotPlain("asks for an object stored elsewhere")


class _Salvaging(pickle._Unpickler):  # type: ignore[name-defined,misc]
    """The slow unpickler of the standard library, whose stack can be looked at when the file ends too early."""

    stack: list[Any]
    metastack: list[list[Any]]

    def find_class(self, module: str, name: str) -> NoReturn:
        raise NotPlain(f"asks for the class {module}.{name}"[:200])

    def persistent_load(self, pid: Any) -> NoReturn:
        raise NotPlain("asks for an object stored elsewhere")


def load_pickle(data: bytes) -> tuple[Any, bool]:
    """The object, and whether the file was cut short. NotPlain for damage and for classes; MemoryError as it comes."""
    try:
        return _Refusing(io.BytesIO(data)).load(), False
    except (EOFError, pickle.UnpicklingError, IndexError, KeyError) as error:
        if isinstance(error, pickle.UnpicklingError) and "truncated" not in str(error):
            raise NotPlain(f"damaged pickle: {error}"[:200]) from None
        found = _salvage_pickle(data)
        if found is None:
            raise NotPlain("a pickle that ends before its first entry") from None
        return found, True
    except NotPlain:
        raise
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise NotPlain(f"damaged pickle: {error}"[:200]) from None


def _salvage_pickle(data: bytes) -> Any:
    """A dictionary or list that was under construction when the file ended: what it held by then."""
    reader = _Salvaging(io.BytesIO(data))
    with contextlib.suppress(
        EOFError, pickle.UnpicklingError, IndexError, KeyError, ValueError, TypeError, struct.error
    ):
        reader.load()
    levels = [*getattr(reader, "metastack", ()), getattr(reader, "stack", [])]
    if not levels or not levels[0]:
        return None
    outer, *more = levels[0]
    rest = levels[1:]
    if isinstance(outer, list):
        return [*outer, *more, *(rest[0] if rest else ())]
    if not isinstance(outer, dict):
        return None
    found = dict(outer)
    if more or rest:
        flat = more or rest.pop(0)  # items set one by one, or all at once
        keys = [key if isinstance(key, str) else None for key in flat[::2]]
        found.update({k: v for k, v in zip(keys, flat[1::2], strict=False) if k is not None})
        last = flat[-1] if len(flat) % 2 == 0 and flat else None
        if isinstance(last, list) and rest and keys[-1] is not None:
            found[keys[-1]] = [*last, *rest[0]]
    return found


def load_json(data: bytes, lists: tuple[str, ...] = ()) -> tuple[Any, bool]:
    """The value, and whether the text was cut short: then the top-level keys before the cut, and what the lists named
    in `lists` held. NotPlain for damage."""
    text = data.decode("utf-8-sig", "replace")
    try:
        return json.loads(text), False
    except RecursionError:
        raise NotPlain("JSON nested too deeply") from None
    except json.JSONDecodeError as error:
        found = _salvage_json(text, lists)
        if found is None:
            raise NotPlain(f"damaged JSON: {error}"[:200]) from None
        return found, True
    except ValueError:  # only numbers of thousands of digits
        return json.loads(text, parse_int=_number), False


def _number(digits: str) -> int | None:
    return int(digits) if len(digits) <= MAX_DIGITS else None


def _salvage_json(text: str, lists: tuple[str, ...]) -> dict[str, Any] | None:
    decoder = json.JSONDecoder(parse_int=_number)
    position, found = _skip(text, 0), dict[str, Any]()
    if text[position : position + 1] != "{":
        return None
    position = _skip(text, position + 1)
    with contextlib.suppress(ValueError, RecursionError):
        while position < len(text) and text[position] == '"':
            key, position = decoder.raw_decode(text, position)
            position = _skip(text, position)
            if text[position : position + 1] != ":":
                break
            position = _skip(text, position + 1)
            if key in lists and text[position : position + 1] == "[":
                items = found[key] = list[Any]()
                position = _items(text, position + 1, decoder, items)
            else:
                found[key], position = decoder.raw_decode(text, position)
            position = _skip(text, position)
            if text[position : position + 1] == ",":
                position = _skip(text, position + 1)
    return found or None


def _items(text: str, position: int, decoder: json.JSONDecoder, items: list[Any]) -> int:
    while True:
        position = _skip(text, position)
        if text[position : position + 1] in ("]", ""):
            return position + 1
        item, position = decoder.raw_decode(text, position)
        items.append(item)
        position = _skip(text, position)
        if text[position : position + 1] == ",":
            position += 1


def _skip(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t\r\n":
        position += 1
    return position
