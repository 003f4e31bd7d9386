"""The broker's settings about its audit log (docs/acls.md); a part of `broker_settings`. All are Ottla's own."""

from typing import Final

from ottla.config.setting import Kind, OneOf, Range, Setting

AUDIT_EVENTS: Final = ("authentications", "refusals", "changes")

AUDIT: Final = (
    Setting(
        "ottla.audit.file",
        Kind.STRING,
        None,
        "Ottla's own. File of the audit log: a line of JSON for each login, refusal and change. Its directory must "
        "exist. Unset, there is none.",
    ),
    Setting(
        "ottla.audit.events",
        Kind.LIST,
        "authentications,refusals,changes",
        "Ottla's own. What the audit log has.",
        OneOf(AUDIT_EVENTS),
    ),
    Setting(
        "ottla.audit.max.file.bytes",
        Kind.LONG,
        "104857600",
        "Ottla's own. Size at which the file of the audit log is renamed, and another one is begun.",
        Range(4096),
    ),
    Setting(
        "ottla.audit.max.files",
        Kind.INT,
        "10",
        "Ottla's own. Files of the audit log that are kept, the one that is written included; older ones are removed.",
        Range(1),
    ),
    Setting(
        "ottla.audit.max.events.per.second",
        Kind.INT,
        "1000",
        "Ottla's own. Lines a second of refusals, of logins and of failed changes at most, each; the rest is counted. "
        "Changes that were made are always written.",
        Range(1),
    ),
    Setting(
        "ottla.audit.on.failure",
        Kind.STRING,
        "report",
        "Ottla's own. `report`: while the audit log cannot be written, as on a full disk, the broker goes on, reports "
        "it in its log, keeps events in memory and counts those that it loses. `stop`: the broker stops.",
        OneOf(("report", "stop")),
    ),
)
