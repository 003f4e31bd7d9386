"""Whether a request comes from the console's own pages: against other sites, forged forms and rebound names. PURE.

A browser marks requests with where they come from (`Origin`, `Sec-Fetch-Site`), and no page can change these marks.
"""

from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from ottla.local_names import is_local_or_address, is_loopback


def is_known_host(host: str, names: Collection[str], *, is_local: bool) -> bool:
    """Whether the `Host` of a request is one of the console's: another one is a name that leads here, of a page that
    means harm (DNS rebinding). Numeric addresses cannot be rebound, and count where it listens beyond loopback.

    names: further hosts, in lower case, without ports. is_local: the console listens on a loopback address.
    """
    try:
        name = (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return False
    if not name or name in names or is_loopback(name):
        return True  # HTTP/1.0 names no host, and no browser speaks it
    return not is_local and is_local_or_address(host)


def loads_from_elsewhere(headers: Mapping[str, str]) -> bool:
    """Whether a page of another origin loads something from here, also into a frame, rather than leads here.

    Pages of other ports of this host are of the same site, and of another origin.
    """
    is_other = headers.get("sec-fetch-site") in ("cross-site", "same-site")
    return is_other and (
        headers.get("sec-fetch-mode") != "navigate" or headers.get("sec-fetch-dest", "document") != "document"
    )


def is_own_form(headers: Mapping[str, str], scheme: str) -> bool:
    """Whether a form was sent by a page of the console. A request without any mark was sent by no browser, and by no
    form of ours.

    `headers` have lower-case names; `scheme` is the one that browsers use to reach the console.
    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is None and origin is None:
        return False
    return (site is None or site == "same-origin") and (
        origin is None or origin.lower() == f"{scheme}://{headers.get('host', '').lower()}"
    )


def origin_of(url: str) -> str:
    """Scheme, host and port of an address, as browsers write them: without the port that the scheme has anyway."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return ""
    named = f"[{host}]" if ":" in host else host
    is_usual = port in (None, {"http": 80, "https": 443}.get(parts.scheme))
    return f"{parts.scheme}://{named}" if is_usual else f"{parts.scheme}://{named}:{port}"


def local_path(text: str) -> str:
    """An address within the console to go on to; the first page for anything that leads elsewhere."""
    if not text.startswith("/") or text.startswith(("//", "/\\")) or any(each < " " for each in text):
        return "/"
    return text
