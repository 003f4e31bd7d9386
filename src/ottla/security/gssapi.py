"""GSSAPI with Kerberos 5 by the system's MIT library: credentials of key tables, and both ends of a context.

Everything here may wait for a disk or for the key distribution centre: it belongs into threads, one at a time for each
object. The library's functions are called without Python's lock. Sources: RFC 2744; `gssapi_ext.h` of MIT krb5 for the
credential stores.
"""

import ctypes
import itertools
import os
from collections.abc import Mapping
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint32, c_void_p
from functools import cache
from typing import Any, Final

from ottla.errors import InvalidConfig

LIBRARIES: Final = ("libgssapi_krb5.so.2", "libkrb5.so.3")
_CONTINUE: Final = 1
_ERRORS: Final = 0xFFFF0000
_FORMED_BY: Final = {"library": 1, "mechanism": 2}
_MUTUAL, _INTEGRITY = 2, 32
_INITIATE, _ACCEPT = 1, 2
_LONGEST_REASON: Final = 8
_numbers: Final = itertools.count(1)


class GssError(Exception):
    """Kerberos refuses; the text is the library's."""


class _Buffer(ctypes.Structure):
    _fields_ = (("length", c_size_t), ("value", c_void_p))


class _Oid(ctypes.Structure):
    _fields_ = (("length", c_uint32), ("elements", c_char_p))


class _OidSet(ctypes.Structure):
    _fields_ = (("count", c_size_t), ("elements", POINTER(_Oid)))


class _Element(ctypes.Structure):
    _fields_ = (("key", c_char_p), ("value", c_char_p))


class _Store(ctypes.Structure):
    _fields_ = (("count", c_uint32), ("elements", POINTER(_Element)))


_KERBEROS: Final = _Oid(9, b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02")
_PRINCIPAL_NAME: Final = _Oid(10, b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02\x01")
_SERVICE_NAME: Final = _Oid(10, b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x01\x04")


@cache
def _gssapi() -> Any:
    """The library. Raises `InvalidConfig` with the remedy if it is not there."""
    try:
        library = ctypes.CDLL(LIBRARIES[0])
        minor, buffer = POINTER(c_uint32), POINTER(_Buffer)
        for name, *arguments in (
            ("import_name", buffer, POINTER(_Oid), POINTER(c_void_p)),
            (
                "acquire_cred_from",
                c_void_p,
                c_uint32,
                POINTER(_OidSet),
                c_int,
                POINTER(_Store),
                POINTER(c_void_p),
                c_void_p,
                c_void_p,
            ),
            (
                "accept_sec_context",
                POINTER(c_void_p),
                c_void_p,
                buffer,
                c_void_p,
                POINTER(c_void_p),
                c_void_p,
                buffer,
                POINTER(c_uint32),
                c_void_p,
                c_void_p,
            ),
            (
                "init_sec_context",
                c_void_p,
                POINTER(c_void_p),
                c_void_p,
                POINTER(_Oid),
                c_uint32,
                c_uint32,
                c_void_p,
                buffer,
                c_void_p,
                buffer,
                POINTER(c_uint32),
                c_void_p,
            ),
            ("display_name", c_void_p, buffer, c_void_p),
            ("wrap", c_void_p, c_int, c_uint32, buffer, c_void_p, buffer),
            ("unwrap", c_void_p, buffer, buffer, c_void_p, c_void_p),
            ("release_buffer", buffer),
            ("release_name", POINTER(c_void_p)),
            ("release_cred", POINTER(c_void_p)),
            ("delete_sec_context", POINTER(c_void_p), c_void_p),
        ):
            function = getattr(library, f"gss_{name}")
            function.argtypes, function.restype = (minor, *arguments), c_uint32
        library.gss_display_status.argtypes = (minor, c_uint32, c_int, POINTER(_Oid), minor, buffer)
        library.gss_display_status.restype = c_uint32
    except (OSError, AttributeError) as problem:
        raise InvalidConfig(
            f"GSSAPI needs MIT Kerberos 1.11 or newer, the library {LIBRARIES[0]} (Debian: apt-get install "
            f"libgssapi-krb5-2): {problem}"
        ) from problem
    return library


def need_kerberos() -> None:
    """Raise `InvalidConfig` with the remedy if the library of Kerberos is not there."""
    _gssapi()


def default_realm() -> str:
    """That of `krb5.conf`, by which the rule DEFAULT goes; empty if there is none."""
    try:
        library = ctypes.CDLL(LIBRARIES[1])
    except OSError:
        return ""
    context, realm = c_void_p(), c_char_p()
    if library.krb5_init_context(byref(context)):
        return ""
    try:
        if library.krb5_get_default_realm(context, byref(realm)):
            return ""
        found = realm.value or b""
        library.krb5_free_default_realm(context, realm)
        return found.decode()
    finally:
        library.krb5_free_context(context)


class Credentials:
    """What a key table proves of one principal. Released with the object."""

    def __init__(self, principal: str, key_table: str, *, cache: str | None = None) -> None:
        """Reads the key table.

        Args:
            cache: the name of the cache of tickets, at the end that logs in; None at the other one. The first ticket
                comes from the key distribution centre, and another one once half of its life is over.

        Raises `GssError`.
        """
        self.handle = c_void_p()
        store = {"keytab": key_table} if cache is None else {"client_keytab": key_table, "ccache": cache}
        name = _imported(principal, _PRINCIPAL_NAME)
        try:
            _call(
                "acquire_cred_from",
                name,
                0,
                byref(_OidSet(1, ctypes.pointer(_KERBEROS))),
                _ACCEPT if cache is None else _INITIATE,
                byref(_store(store)),
                byref(self.handle),
                None,
                None,
            )
        finally:
            _call("release_name", byref(name))

    def __del__(self) -> None:
        if self.handle.value:
            _call("release_cred", byref(self.handle))


def new_cache() -> str:
    """The name of a cache of tickets in this process's memory."""
    return f"MEMORY:ottla-{os.getpid()}-{next(_numbers)}"


class Context:
    """One end of a context: `step` until `is_complete`, then `wrap` and `unwrap`."""

    def __init__(self) -> None:
        self._handle = c_void_p()
        self.is_complete = False
        self.peer = ""
        """The principal at the other end, at the end that accepts, once the context is complete."""

    def step(self, token: bytes) -> bytes:
        """The token that answers the other end's, perhaps empty. Raises `GssError`."""
        raise NotImplementedError

    def wrap(self, message: bytes) -> bytes:
        """Protect a message against changes, as SASL does without a security layer. Raises `GssError`."""
        output = _Buffer()
        _call("wrap", self._handle, 0, 0, byref(_buffer(message)), None, byref(output))
        return _taken(output)

    def unwrap(self, message: bytes) -> bytes:
        """A message of the other end. Raises `GssError` if it is not the one that was sent."""
        output = _Buffer()
        _call("unwrap", self._handle, byref(_buffer(message)), byref(output), None, None)
        return _taken(output)

    def __del__(self) -> None:
        if self._handle.value:
            _call("delete_sec_context", byref(self._handle), None)


class Acceptor(Context):
    """The end that is logged in to."""

    def __init__(self, credentials: Credentials) -> None:
        super().__init__()
        self._credentials = credentials

    def step(self, token: bytes) -> bytes:
        """As `Context.step`."""
        peer, output, flags = c_void_p(), _Buffer(), c_uint32()
        try:
            status = _call(
                "accept_sec_context",
                byref(self._handle),
                self._credentials.handle,
                byref(_buffer(token)),
                None,
                byref(peer),
                None,
                byref(output),
                byref(flags),
                None,
                None,
            )
            if not status & _CONTINUE:
                self.peer = _displayed(peer)
                self.is_complete = True
            return _taken(output)
        except BaseException:
            _taken(output)
            raise
        finally:
            if peer.value:
                _call("release_name", byref(peer))


class Initiator(Context):
    """The end that logs in."""

    def __init__(self, credentials: Credentials, service: str, host: str) -> None:
        """To the principal `service/host`. Raises `GssError`."""
        super().__init__()
        self._credentials = credentials
        self._target = _imported(f"{service}@{host}", _SERVICE_NAME)

    def step(self, token: bytes) -> bytes:
        """As `Context.step`; the first is made of an empty token.

        Raises `GssError` also if the other end does not prove itself.
        """
        output, flags = _Buffer(), c_uint32()
        try:
            status = _call(
                "init_sec_context",
                self._credentials.handle,
                byref(self._handle),
                self._target,
                byref(_KERBEROS),
                _MUTUAL | _INTEGRITY,
                0,
                None,
                byref(_buffer(token)),
                None,
                byref(output),
                byref(flags),
                None,
            )
        except BaseException:
            _taken(output)
            raise
        answer = _taken(output)
        if not status & _CONTINUE:
            if flags.value & (_MUTUAL | _INTEGRITY) != _MUTUAL | _INTEGRITY:
                raise GssError("the other end does not prove that it has the key of its service")
            self.is_complete = True
        return answer

    def __del__(self) -> None:
        super().__del__()
        if hasattr(self, "_target"):
            _call("release_name", byref(self._target))


def _call(name: str, *arguments: Any) -> int:
    minor = c_uint32()
    status = int(getattr(_gssapi(), f"gss_{name}")(byref(minor), *arguments))
    if status & _ERRORS:
        raise GssError(_reason(status, minor.value))
    return status


def _reason(status: int, minor: int) -> str:
    """The library's text of an error: the mechanism's own, if it has one."""
    for kind, code in (("mechanism", minor), ("library", status)):
        texts, more = [], c_uint32()
        for _ in range(_LONGEST_REASON):
            ignored, text = c_uint32(), _Buffer()
            if not code or _gssapi().gss_display_status(
                byref(ignored), code, _FORMED_BY[kind], byref(_KERBEROS), byref(more), byref(text)
            ):
                break
            texts.append(_taken(text).decode(errors="replace"))
            if not more.value:
                break
        if texts:
            return ", ".join(texts)
    return f"error {status:#x}, {minor}"


def _buffer(content: bytes) -> _Buffer:
    """It refers to `content`, which has to live as long."""
    made = _Buffer(len(content), ctypes.cast(c_char_p(content), c_void_p))
    made.content = content
    return made


def _taken(output: _Buffer) -> bytes:
    """The bytes of the library's buffer, which is released."""
    content = ctypes.string_at(output.value, output.length) if output.value else b""
    _gssapi().gss_release_buffer(byref(c_uint32()), byref(output))
    return content


def _imported(name: str, kind: _Oid) -> c_void_p:
    found = c_void_p()
    _call("import_name", byref(_buffer(name.encode())), byref(kind), byref(found))
    return found


def _displayed(name: c_void_p) -> str:
    text = _Buffer()
    _call("display_name", name, byref(text), None)
    return _taken(text).decode(errors="replace")


def _store(content: Mapping[str, str]) -> _Store:
    elements = (_Element * len(content))(*(_Element(key.encode(), value.encode()) for key, value in content.items()))
    made = _Store(len(content), elements)
    made.kept = elements
    return made
