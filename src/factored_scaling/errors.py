"""Every error this package raises on purpose: what was wrong, where, and what to do about it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

# what a terminal interprets instead of showing: control characters without tab and line feed, separators of lines and
# paragraphs, changes of the direction of writing, and halves of characters, which cannot be written at all
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

# user:password@ in an address; a database's password may hold anything but @, as SQLAlchemy reads it
_PASSWORD = re.compile(
    r"\b((?!http|ws)[a-z][\w+.-]*://[^:/@]*):[^@]*@|\b((?:https?|wss?)://[^:/@\s]*):[^@/\s]*@", re.IGNORECASE
)
_IN_QUERY = re.compile(r"([?&]\w*password=)[^&#\s`'\"]*", re.IGNORECASE)


def hide_passwords(text: str) -> str:
    """`text` with `***` for the password of every address in it."""
    return _IN_QUERY.sub(r"\1***", _PASSWORD.sub(lambda found: f"{found[1] or found[2]}:***@", text))


def printable(text: str) -> str:
    """`text` with control characters written out (`\\x1b`), so that a terminal shows them."""
    return _UNSEEN.sub(lambda found: ascii(found[0])[1:-1], text)


def has_control_characters(text: str) -> bool:
    """Whether `text` has control characters or more than one line."""
    return _UNSEEN.search(text) is not None or "\n" in text or "\t" in text


def one_line(text: str, longest: int | None = None) -> str:
    """`text` as one printable line without passwords, cut to `longest` characters."""
    line = printable(hide_passwords(" ".join(text.split())))
    return line if longest is None or len(line) <= longest else f"{line[: longest - 1]}…"


class FscError(Exception):
    """Base of all errors. `where` names the file, row, column or option; `hint` says what to do."""

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what, where, hint)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        whole = f"{text}; {self.hint}" if self.hint else text
        return one_line(whole)  # names may hold line breaks and control characters

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (type(self), self.what, self.where, self.hint)

    def at(self, where: str) -> FscError:
        """The same error with `where` in front of its own place."""
        return _rebuilt(type(self), self.what, f"{where}: {self.where}" if self.where else where, self.hint)


class InvalidInput(FscError):
    """Something the user wrote is not right; nothing was changed. Exit code 2."""

    exit_code = 2


class UnknownName(InvalidInput):
    """A name that is not one of the known ones; the nearest is suggested. `kind` says what it should name."""

    kind = "name"

    def __init__(
        self, name: str, known: Iterable[str] = (), *, kind: str = "", where: str = "", hint: str = ""
    ) -> None:
        super().__init__(f"unknown {kind or self.kind} {name!r}", where=where, hint=hint or suggest(name, known))


class UnknownFactor(UnknownName):
    """A factor that the study does not declare."""

    kind = "factor"


class UnknownTask(UnknownName):
    """A task that no simulator registers."""

    kind = "task"


class NotEnoughData(InvalidInput):
    """The results cannot answer the question yet (a curve with one point, a factor without scores)."""


class StudyMissing(InvalidInput):
    """The study, or the round or run in it, does not exist."""


class StudyExists(InvalidInput):
    """There is a study of this name already."""


class TrialTaken(InvalidInput):
    """A queued trial that another operator is running, or that is scored or left out already."""


class LeaseLost(FscError):
    """A run was taken over by another worker because this one stopped reporting."""


class StoreError(FscError):
    """The durable record is unreadable, locked, or of a version this release does not know."""


class StoreUnreachable(StoreError):
    """The database's server does not answer, or another program holds the file; it may be back in a moment."""


class CheckpointError(FscError):
    """A checkpoint is missing, cut short, or not what its own description says."""


class PolicyError(FscError):
    """A served policy cannot be reached, closed the connection, or answered with an error."""


class RunFailed(FscError):
    """Training or evaluation of one run ended in an error; the run keeps the reason."""


def _rebuilt(kind: type[FscError], what: str, where: str, hint: str) -> FscError:
    """An error from its parts, whatever its constructor takes; it unpickles errors of workers."""
    error = kind.__new__(kind)
    FscError.__init__(error, what, where=where, hint=hint)
    return error


def installs(extra: str) -> str:
    """The hint for a package of an extra; factored-scaling is installed from a clone, not from an index."""
    return f"`pip install '.[{extra}]'` in a clone of factored-scaling"


def suggest(name: str, known: Iterable[str]) -> str:
    """'did you mean …?' when one of the known names is near, else the list of them."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]}?"
    return f"known: {', '.join(names)}" if names else ""
