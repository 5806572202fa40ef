"""A pickled store or table that cannot be opened again, where it came to."""

from __future__ import annotations

from typing import Any, NoReturn

from ._errors import Error


class Unopened:
    """Raises, whatever is asked of it, why it could not be opened.

    Raised while it is unpickled, the error would end the worker of a `multiprocessing.Pool`,
    and whoever waits for its answer would wait for ever.
    """

    def __init__(self, error: Error) -> None:
        self.__dict__["error"] = error

    def __reduce__(self) -> tuple[Any, ...]:
        return Unopened, (self.__dict__["error"],)

    def _fail(self, *_: object, **__: object) -> NoReturn:
        raise self.__dict__["error"].with_traceback(None)

    __getitem__ = __setitem__ = __delitem__ = __contains__ = __iter__ = __len__ = _fail
    __bool__ = __enter__ = __exit__ = __arrow_c_stream__ = _fail

    def __getattr__(self, name: str) -> NoReturn:
        self._fail()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        self._fail()

    def __repr__(self) -> str:
        return f"<forebay, not opened: {self.__dict__['error']}>"
