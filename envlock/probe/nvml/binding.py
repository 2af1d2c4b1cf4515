"""Calls of NVML through the module `pynvml`, and what their errors mean.

Each call is made once for each GPU, however many facts are in its answer. A function that
the binding lacks, that takes other arguments in older bindings, or whose error code the
binding drops, is asked by its symbol: the structures are still the binding's own.

Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, NamedTuple, Tuple

from envlock.facts import FAILED, NO_PERMISSION, NOT_IN_DRIVER, NOT_SUPPORTED, VALUE, Observed, Value, absent
from envlock.probe.host import Absent

# nvmlReturn_t (nvml.h): 26 is "deprecated"; a missing symbol (13) and a structure that the
# driver does not know (25) mean a driver older than the question.
_OUTCOMES = {3: NOT_SUPPORTED, 26: NOT_SUPPORTED, 13: NOT_IN_DRIVER, 25: NOT_IN_DRIVER, 4: NO_PERMISSION}
_WORDS = {18: "the driver's library and the loaded kernel module are different versions"}
INVALID = 2
NOT_FOUND = 6
NOT_LOADED = 9
NO_LIBRARY = 12
CORRUPTED_INFOROM = 14
MISMATCH = 18


_MOST_BYTES = 64  # of an answer that is no text, shown as hexadecimal digits
_TOO_OLD = "this NVML binding is too old to ask"
_WRONG_SIZE = "this NVML binding has the wrong size for the answer"


class TooOld(Absent):
    """Raised for a question that this binding cannot ask."""

    def __init__(self, words: str = _TOO_OLD) -> None:
        super().__init__(FAILED, words)


class Told(NamedTuple):
    """A value with a remark: what `Question.convert` may return in place of a bare value."""

    value: Value
    detail: str


class Call(NamedTuple):
    """One way to ask: a function of the binding, or `make`, which asks with the binding and a GPU's handle."""

    function: str
    arguments: Tuple[Any, ...] = ()
    make: Callable[[Binding, Any], Any] | None = None


class Question(NamedTuple):
    """One fact: how to ask for it, in order of preference, and how the answer becomes a value.

    A later call is made only where binding or driver do not have the earlier one.
    """

    key: str
    calls: Tuple[Call, ...]
    convert: Callable[[Any], Value | Told]


class Binding:
    """The module `pynvml`. `tell` is told the name of each function before it is called."""

    def __init__(self, module: Any, tell: Callable[[str], None] | None = None) -> None:
        self.module = module
        self._tell = tell

    def call(self, function: str, *arguments: Any) -> Any:
        """Return what the binding's `function` returns; raises `TooOld`, and the binding's errors."""
        found = getattr(self.module, function, None)
        if found is None:
            raise TooOld
        if self._tell is not None:
            self._tell(function)
        return found(*arguments)

    def raw(self, function: str, *arguments: Any) -> None:
        """Call the symbol `function` itself; raises the binding's error for the code it returns."""
        pointer = getattr(self.module, "_nvmlGetFunctionPointer", None)
        check = getattr(self.module, "_nvmlCheckReturn", None)
        if pointer is None or check is None:
            raise TooOld
        if self._tell is not None:
            self._tell(function)
        check(pointer(function)(*arguments))

    def filled(self, function: str, handle: Any, structure: str, version: str, **fields: int) -> Any:
        """Return the binding's `structure`, filled by `function`; `version` names the constant that it carries.

        The lower three bytes of that constant are the structure's size (NVML_STRUCT_VERSION).
        Bindings before 12.570 have some structures larger than that: their fields would be
        read from the wrong places, and zeros taken for an answer.
        """
        from ctypes import byref

        kind = getattr(self.module, structure, None)
        number = getattr(self.module, version, None)
        if kind is None or number is None:
            raise TooOld
        found = sized(kind(), number & 0xFFFFFF)
        for name, given in (("version", number), *fields.items()):
            setattr(found, name, given)
        self.raw(function, handle, byref(found))
        return found

    def error(self, number: int) -> Exception:
        """Return the binding's exception for an error code of NVML."""
        made: Exception = self.module.NVMLError(number)
        return made


class Asker:
    """Asks one GPU, or the driver (`first` is then empty), and makes no call twice."""

    def __init__(self, binding: Binding, first: Tuple[Any, ...]) -> None:
        self.binding = binding
        self.first = first
        self._answers: Dict[Tuple[str, Tuple[Any, ...]], Any] = {}
        self._faults: Dict[Tuple[str, Tuple[Any, ...]], Exception] = {}

    def ask(self, call: Call) -> Any:
        """Return the answer to `call`; raises what it raised, now or before."""
        known = (call.function, call.arguments)
        if known in self._faults:
            raise self._faults[known]
        if known not in self._answers:
            try:
                if call.make is not None:
                    self._answers[known] = call.make(self.binding, *self.first)
                else:
                    self._answers[known] = self.binding.call(call.function, *self.first, *call.arguments)
            except Exception as error:
                self._faults[known] = error
                raise
        return self._answers[known]

    def observe(self, question: Question) -> Observed:
        """Return the fact that `question` asks for; nothing that NVML can do raises."""
        seen = absent(FAILED, "NVML", "nothing was asked")
        for call in question.calls:
            seen = observed(call.function, lambda call=call: question.convert(self.ask(call)))  # type: ignore[misc]
            if seen.outcome != NOT_IN_DRIVER and seen.detail not in (_TOO_OLD, _WRONG_SIZE):
                break
        return seen


def sized(structure: Any, size: int) -> Any:
    """Return `structure` when it has `size` bytes; raises `TooOld` when the binding has it wrong."""
    from ctypes import sizeof

    if sizeof(structure) != size:
        raise TooOld(_WRONG_SIZE)
    return structure


def observed(function: str, read: Callable[[], Value | Told]) -> Observed:
    """Return what `read` returns as a fact from the NVML `function`; what it raises as its absence."""
    source = "NVML " + function
    try:
        found = read()
        if isinstance(found, Told):
            return Observed(VALUE, found.value, source, found.detail)
        return Observed(VALUE, found, source)
    except Absent as absence:
        return absent(absence.outcome, source, absence.detail)
    except Exception as error:
        return absent(outcome(error), source, described(error))


def code(error: BaseException) -> int:
    """Return NVML's code of an error; -1 for what is no error of NVML."""
    found = getattr(error, "value", None)
    return found if isinstance(found, int) else -1


def outcome(error: Exception) -> str:
    """Return the outcome that an error stands for."""
    return error.outcome if isinstance(error, Absent) else _OUTCOMES.get(code(error), FAILED)


def described(error: Exception) -> str:
    """Return an error in words, with NVML's code where it has one."""
    if code(error) >= 0:
        words = _WORDS.get(code(error)) or str(error).strip().rstrip(".").lower() or "error"
        return "{} (NVML code {})".format(words, code(error))
    if isinstance(error, UnicodeDecodeError):
        return "the driver answered with bytes that are not text: {}".format(bytes(error.object[:_MOST_BYTES]).hex())
    if isinstance(error, (Absent, ValueError)):
        return str(error)
    return "{}: {}".format(type(error).__name__, error)
