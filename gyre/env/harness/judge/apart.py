"""Code of somebody else's, called by a process that never imports it: there `import calc` gives a stand-in, whose functions run over here.

    tests ── calc.total([100, 250], 20) ──▶ StandIn ──▶ Work ── a line of JSON ──▶ serve(): import calc, call
          ◀── a plain value, or what it raised ──────────────── a line of JSON ──┘

Plain: None, bool, int, float, str, bytes, list, tuple, set, frozenset and dict, and exactly these types. So whoever compares holds values of its own
making: no object whose `__eq__` is always true comes across, and nothing over here can touch what compares, counts or tells.
"""

import builtins
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_loader
from types import ModuleType
from typing import Any, BinaryIO

SCALARS = (type(None), bool, int, float, str)
SERIES = {kind.__name__: kind for kind in (list, tuple, set, frozenset)}
REPLY_BYTES_MAX = 64 * 2**20
WORDS_CHARS = 1000


class Unheard(BaseException):
    """No answer that a test could go by: the process ended, or what should cross is not plain. No Exception, so that no test can expect it."""


def encoded(value: Any) -> Any:
    """Of a plain value, as JSON that keeps its type. Raises Unheard."""
    kind = type(value)
    if kind in SCALARS:
        return value
    if kind is dict:
        return {"dict": [[encoded(key), encoded(item)] for key, item in value.items()]}
    if kind is bytes:
        return {"bytes": value.hex()}
    if SERIES.get(kind.__name__) is kind:
        return {kind.__name__: [encoded(item) for item in value]}
    raise Unheard(f"a {kind.__name__} is no plain value")


def decoded(said: Any) -> Any:
    """Raises ValueError, TypeError, KeyError or RecursionError where `said` is nothing that `encoded` makes."""
    if type(said) in SCALARS:
        return said
    ((kind, items),) = said.items()
    if kind == "dict":
        return {decoded(key): decoded(item) for key, item in items}
    if kind == "bytes":
        return bytes.fromhex(items)
    return SERIES[kind](decoded(item) for item in items)


# Where the tests are


class Work:
    """The process in which what is tested runs; started when it is first asked, and again after it has ended."""

    def __init__(self, start: Callable[[], tuple[BinaryIO, BinaryIO]]) -> None:
        """`start` → where requests go, where replies come from."""
        self._start = start
        self._peer: tuple[BinaryIO, BinaryIO] | None = None
        self._lock = threading.Lock()

    def ask(self, module: str, name: str = "", call: tuple[tuple, dict] | None = None) -> Any:
        """The value of `name` in `module`, or what calling it gives. Raises what it raised (the nearest of Python's own exceptions; `place`: where
        in the working folder, `file:line`), or Unheard."""
        request = {"module": module, "name": name, "call": None if call is None else encoded(list(call))}
        line = json.dumps(request).encode() + b"\n"
        with self._lock:
            said = self._answer(line)
        if not said.endswith(b"\n"):
            raise Unheard(f"{module} {name}: its process ended or said too much")
        return self._heard(said, module, name)

    def _answer(self, line: bytes) -> bytes:
        self._peer = self._peer or self._start()
        requests, replies = self._peer
        try:
            requests.write(line)
            requests.flush()
            said = replies.readline(REPLY_BYTES_MAX)
        except OSError:
            said = b""
        if not said.endswith(b"\n"):
            self._peer = None
        return said

    def _heard(self, said: bytes, module: str, name: str) -> Any:
        try:
            reply = json.loads(said)
            if "value" in reply:
                return decoded(reply["value"])
            if "reference" in reply:
                return Reference(self, module, name)
            if "words" in reply:
                raise Unheard(f"{module} {name}: {reply['words']}")
            raised = _exception(reply["raised"], decoded(reply["args"]))
            raised.place = str(reply["place"])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, MemoryError) as error:
            raise Unheard(f"{module} {name}: no answer that can be read") from error
        raise raised


def _exception(names: list[str], args: list) -> BaseException:
    """Of the first of these names that takes these arguments."""
    for name in names:
        kind = vars(builtins).get(name)
        if isinstance(kind, type) and issubclass(kind, BaseException):
            try:
                return kind(*args)
            except Exception:  # its base takes anything
                continue
    raise ValueError("no exception")


class Reference:
    """To a function, which runs over there when it is called; or to a class or module, what stands in which does, too."""

    def __init__(self, work: Work, module: str, name: str) -> None:
        self._work, self._module, self.__name__ = work, module, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._work.ask(self._module, self.__name__, (args, kwargs))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._work.ask(self._module, f"{self.__name__}.{name}")


class StandIn(Loader):
    """Makes the module that stands for one over there."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        def attribute(name: str) -> Any:
            if name.startswith("__"):  # `__all__` too: `import *` would let it give names of the tests' another meaning
                raise AttributeError(name)
            value = self._work.ask(module.__name__, name)
            if isinstance(value, Reference):  # to what stands there when it is called
                setattr(module, name, value)
            return value

        self._work.ask(module.__name__)  # what it raises when it is imported, the import of its stand-in raises
        module.__getattr__ = attribute


class StandIns(MetaPathFinder):
    """Finds stand-ins for what is in the folder `folder`, behind the folders `before`. What is in `others` as well is neither: a test that means what
    is installed must not be given what was left, nor the other way round."""

    def __init__(self, work: Work, folder: str, before: list[str], others: list[str]) -> None:
        self._loader, self._folder, self._before, self._others = StandIn(work), folder, before, others

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if path is None and _is_module(PathFinder.find_spec(name, self._before)):
            return None
        inside = [self._folder] if path is None else [place for place in path if self._holds(place)]
        found = PathFinder.find_spec(name, inside) if inside else None
        if found is None:
            return None
        if path is None and _is_module(PathFinder.find_spec(name, self._others)):
            if not _is_module(found):
                return None
            raise Unheard(f"{name} is installed, and among what was left too")
        folders = found.submodule_search_locations
        made = spec_from_loader(name, self._loader, origin=found.origin, is_package=folders is not None)
        made.has_location = found.has_location
        made.submodule_search_locations = None if folders is None else list(folders)
        return made

    def _holds(self, place: str) -> bool:
        return place == self._folder or place.startswith(self._folder + os.sep)


def _is_module(spec: ModuleSpec | None) -> bool:
    """More than a folder without `__init__.py`."""
    return spec is not None and spec.loader is not None


# Where what is tested is


def serve(requests: BinaryIO, replies: BinaryIO) -> None:
    """Answers line by line, until there are no more."""
    folder = os.getcwd()
    for line in requests:
        try:
            said = json.dumps(_reply(json.loads(line)))
        except Unheard as error:
            said = json.dumps({"words": str(error)})
        except BaseException as error:
            names = [kind.__name__ for kind in _builtin_kinds(error)]
            said = json.dumps({"raised": names, "args": _arguments(error), "place": place_of(error, folder)})
        replies.write(said.encode() + b"\n")
        replies.flush()


def _reply(request: dict) -> dict:
    found = import_module(request["module"])
    if not request["name"]:
        return {"value": None}
    for part in request["name"].split("."):
        found = getattr(found, part)
    if request["call"] is not None:
        args, kwargs = decoded(request["call"])
        return {"value": encoded(found(*args, **kwargs))}
    is_reference = callable(found) or isinstance(found, ModuleType)
    return {"reference": True} if is_reference else {"value": encoded(found)}


def _builtin_kinds(error: BaseException) -> Iterator[type]:
    return (kind for kind in type(error).__mro__ if vars(builtins).get(kind.__name__) is kind)


def _arguments(error: BaseException) -> Any:
    """Encoded; of one whose arguments are not plain, its words."""
    try:
        return encoded(list(error.args))
    except Unheard:
        return encoded([str(error)[:WORDS_CHARS]])


def place_of(error: BaseException, folder: str) -> str:
    """`file:line`, the innermost in `folder`; empty where there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{os.path.basename(error.filename)}:{error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(folder)]
    return f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""


def main() -> None:
    """`apart.py`: requests on stdin; what is imported is looked for in the working folder behind the library."""
    import site

    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # what it prints is no answer
    library = list(sys.path)
    site.main()
    sys.path[:] = [*library, os.getcwd(), *(path for path in sys.path if path not in library)]
    sys.dont_write_bytecode = True
    serve(requests, replies)


if __name__ == "__main__":
    main()
