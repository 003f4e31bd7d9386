"""PURE: texts in the character sets of MySQL and MariaDB, as the servers convert them.

Python has most of them, some with other characters in a few places; its byte order for utf16, ucs2 and utf32 is not
the servers'. A byte without a character comes as `?`, as from a query. The test compares every character with a server.
"""

import codecs
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final

Decode = Callable[[bytes], str]

_CONTROLS: Final = "".join(map(chr, range(0x80, 0xA0)))
_ARMENIAN: Final = (
    _CONTROLS + "\xa0❁§։)(»«—.՝,-՟…՜՛՞ԱաԲբԳգԴդԵեԶզԷէԸըԹթԺժԻիԼլԽխԾծԿկՀհՁձՂղՃճՄմՅյՆնՇշՈոՉչՊպՋջՌռՍսՎվՏտՐրՑցՒւՓփՔքՕօՖֆ’'"
)
_CZECHOSLOVAK: Final = "ČüéďäĎŤčěĚĹÍľĺÄÁÉžŽôöÓůÚýÖÜŠĽÝŘťáíóúňŇŮÔšřŕŔ¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\xa0"  # noqa: E501
_GEORGIAN: Final = (
    "€?‚?„…†‡?‰?‹?????‘’“”•–—???›????\xa0¡¢£¤¥¦§¨©ª«¬\xad®¯°±²³´µ¶·¸¹º»¼½¾¿"
    "აბგდევზჱთიკლმნჲოპჟრსტჳუფქღყშჩცძწჭხჴჯჰჵ" + "?" * 23 + "№??"
)
_IBM_IN_EUC: Final = (
    "ⅰⅱⅲⅳⅴⅵⅶⅷⅸⅹⅠⅡⅢⅣⅤⅥⅦⅧⅨⅩ＇＂㈱№℡炻仼僴凬匇匤\ufa0e咊坙\ufa0f\ufa10增寬峵嵓\ufa11"
    "德悅愠敎昻晥\ufa12\uf929栁\ufa13\ufa14橫櫢淸淲瀨\ufa15\ufa16甁皂皞\ufa17礰\ufa18"
    "\ufa19\ufa1a\ufa1b竧\ufa1c\ufa1d綠緖\ufa1e荢\ufa1f薰\ufa20\ufa21蠇"
    "\ufa22譿賴赶\ufa23\ufa24\ufa25郞\ufa26鄕\ufa27\ufa28閒\uf9dc\ufa29"
    "霻靍靑\ufa2a\ufa2b\ufa2c馞髙魲\ufa2d黑"
)
"""What eucjpms has from 8F F3F3 on."""
_BY_PYTHON: Final[Mapping[str, str]] = {
    "utf8": "utf-8",
    "utf8mb3": "utf-8",
    "utf8mb4": "utf-8",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "ascii": "ascii",
    "cp850": "cp850",
    "cp852": "cp852",
    "cp932": "cp932",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "cp1256",
    "cp1257": "cp1257",
    "euckr": "cp949",
    "gb2312": "gb2312",
    "gb18030": "gb18030",
    "gbk": "gbk",
    "hp8": "hp_roman8",
    "koi8r": "koi8_r",
    "latin2": "iso8859_2",
    "latin5": "iso8859_9",
    "latin7": "iso8859_13",
    "macce": "mac_latin2",
    "macroman": "mac_roman",
    "tis620": "tis_620",
}
_SINGLE_BYTE: Final[Mapping[str, tuple[str, Mapping[int, str]]]] = {
    "latin1": ("cp1252", {each: chr(each) for each in (0x81, 0x8D, 0x8F, 0x90, 0x9D)}),
    "hebrew": ("iso8859_8", {0xAF: "‾"}),
    "greek": ("iso8859_7", {0xA1: "ʽ", 0xA2: "ʼ", **dict.fromkeys((0xA4, 0xA5, 0xAA), "?")}),
    "koi8u": ("koi8_u", {0x95: "•"}),
    "cp866": ("cp866", {0xFC: "ⁿ", 0xFD: "²"}),
    "swe7": ("ascii", dict(zip(b"@[\\]^`{|}~\x7f", "ÉÄÖÅÜéäöåü?", strict=True))),
    "dec8": (
        "latin1",
        {
            **dict.fromkeys(b"\xa4\xa6\xac\xad\xae\xaf\xb4\xb8\xbe\xd0\xde\xf0\xfe\xff", "?"),
            0xA8: "¤",
            0xD7: "Œ",
            0xDD: "Ÿ",
            0xF7: "œ",
            0xFD: "ÿ",
        },
    ),
    "armscii8": ("ascii", dict(enumerate(_ARMENIAN, 0x80))),
    "keybcs2": ("ascii", dict(enumerate(_CZECHOSLOVAK, 0x80))),
    "geostd8": ("ascii", dict(enumerate(_GEORGIAN, 0x80))),
}
"""Codec of Python, and where the servers have something else."""
_IN_EUC: Final = {b"\x8f\xa2\xb7": "～", b"\x8f\xa2\xc3": "￤"}
_DOUBLE_BYTE: Final[Mapping[str, tuple[str, Mapping[bytes, str]]]] = {
    "big5": ("big5", {bytes((0xF9, 0xD6 + number)): text for number, text in enumerate("碁銹裏墻恒粧嫺")}),
    "sjis": ("shift_jis", {b"\x81\x5f": "\\"}),
    "ujis": ("euc_jp", {b"\xa1\xc0": "\\"}),
    "eucjpms": (
        "euc_jp",
        _IN_EUC
        | {
            bytes((0x8F, 0xA1 + row, 0xA1 + cell)): text
            for (row, cell), text in ((divmod(n, 94), text) for n, text in enumerate(_IBM_IN_EUC, 82 * 94 + 82))
        },
    ),
}
MAX_BYTES: Final[Mapping[str, int]] = {
    **dict.fromkeys(("big5", "cp932", "euckr", "gb2312", "gbk", "sjis", "ucs2"), 2),
    **dict.fromkeys(("eucjpms", "ujis", "utf8", "utf8mb3"), 3),
    **dict.fromkeys(("gb18030", "utf8mb4", "utf16", "utf16le", "utf32"), 4),
}
"""The most bytes of one character, in character sets that may use more than one."""


@cache
def decoder(charset: str) -> Decode:
    """What makes a text of bytes in a character set of the server's. Raises KeyError for one that is not known."""
    if charset in _SINGLE_BYTE:
        return _single_byte(*_SINGLE_BYTE[charset])
    if charset in _DOUBLE_BYTE:
        return _double_byte(charset, *_DOUBLE_BYTE[charset])
    return _python(_BY_PYTHON[charset])


def _python(codec: str) -> Decode:
    decode = codecs.lookup(codec).decode

    def text(raw: bytes) -> str:
        try:
            return decode(raw)[0]
        except UnicodeDecodeError:
            return decode(raw, "replace")[0].replace("\ufffd", "?")

    return text


def _single_byte(codec: str, others: Mapping[int, str]) -> Decode:
    table = "".join(
        others.get(each) or bytes((each,)).decode(codec, "replace").replace("\ufffd", "?") for each in range(256)
    )
    return lambda raw: codecs.charmap_decode(raw, "strict", table)[0]


def _double_byte(charset: str, codec: str, others: Mapping[bytes, str]) -> Decode:
    """A decoder of characters of one, two or (after 8F, in EUC) three bytes."""
    in_euc = codec == "euc_jp"

    @cache
    def character(raw: bytes) -> str | None:
        found = others.get(raw)
        if found is None and in_euc:
            found = _own_area(raw) or (_as_shift_jis(raw) if charset == "eucjpms" else None)
        return found or _decoded(raw, codec)

    def text(raw: bytes) -> str:
        if raw.isascii():
            return raw.decode("ascii")
        found, at = [], 0
        while at < len(raw):
            lead = raw[at]
            longest = 1 if lead < 0x80 else 3 if in_euc and lead == 0x8F else 2
            for length in (longest, 1):
                one = character(raw[at : at + length])
                if one is not None and len(one) == 1:
                    break
            found.append(one if one is not None and len(one) == 1 else "?")
            at += length
        return "".join(found)

    return text


def _decoded(raw: bytes, codec: str) -> str | None:
    try:
        return raw.decode(codec)
    except UnicodeDecodeError:
        return None


def _own_area(raw: bytes) -> str | None:
    """EUC's rows that are the users' own: Unicode's private area."""
    if len(raw) == 2 and raw[0] >= 0xF5:
        return chr(0xE000 + (raw[0] - 0xF5) * 94 + raw[1] - 0xA1)
    if len(raw) == 3 and raw[1] >= 0xF5:
        return chr(0xE3AC + (raw[1] - 0xF5) * 94 + raw[2] - 0xA1)
    return None


def _as_shift_jis(raw: bytes) -> str | None:
    """Microsoft's characters in EUC's places."""
    if len(raw) != 2 or not (0xA1 <= raw[0] <= 0xFE and 0xA1 <= raw[1] <= 0xFE):
        return None
    row, cell = raw[0] - 0x80, raw[1] - 0x80
    lead = (row - 0x21) // 2 + (0x81 if row < 0x5F else 0xC1)
    trail = cell + 0x1F + (cell >= 0x60) if row % 2 else cell + 0x7E
    return _decoded(bytes((lead, trail)), "cp932")
