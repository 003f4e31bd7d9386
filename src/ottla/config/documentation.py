"""Prints every setting as Markdown: `docs/configuration.md` is what this prints."""

from collections.abc import Iterable, Sequence

from ottla.config.authorizer import AUTHORIZER_SETTINGS
from ottla.config.broker_settings import BROKER_SETTINGS
from ottla.config.group_settings import GROUP_SETTINGS, GroupSetting
from ottla.config.other_settings import OTHER_SETTINGS
from ottla.config.setting import Change, Setting
from ottla.config.topic_settings import TOPIC_SETTINGS

INTRODUCTION = """\
# Settings

<!-- Printed by `python -m ottla.config`; a test holds it equal. -->

`ottla serve` reads Kafka's `server.properties`: the same names, values and syntax (Java's `.properties`).
`--override NAME=VALUE` wins over the file. A setting that has an effect in Kafka 4.3 but none in Ottla gives a warning,
and so does an unknown name (with `--strict` the broker refuses it).

Listeners speak [TLS, and SASL with GSSAPI, PLAIN, SCRAM and OAUTHBEARER](tls.md). `authorizer.class.name` with Kafka's
own class, `super.users` and `allow.everyone.if.no.acl.found` switch [access control](acls.md) on. Settings that ask for
another authorizer, or for other parts of TLS and SASL, prevent the start, unless `--allow-insecure` is given:
`ssl.engine.factory.class`, `sasl.oauthbearer.assertion.file`, `zookeeper.ssl.ocsp.enable`. Kafka's defaults ask for
none of them.

`create.topic.policy.class.name` and `alter.config.policy.class.name` name policies written in Python
([policies.md](policies.md)).

`config.providers` with Kafka's classes for environment variables, files and directories (`EnvVarConfigProvider`,
`FileConfigProvider`, `DirectoryConfigProvider`, with `allowlist.pattern` and `allowed.paths`) replaces `${env:NAME}`
and other placeholders when the broker starts, and in broker settings that are changed while it runs. Only the
properties file can declare providers, so a client that changes a setting cannot add one that reads files. A placeholder
without a value is refused. A placeholder of an undeclared provider stays unchanged, but `log.dirs`, `log.dir` and
`metadata.log.dir` are refused with one.

`process.roles=broker` with `controller.quorum.bootstrap.servers` or `controller.quorum.voters` makes a node a broker
under a quorum of controllers (KRaft), genuine Kafka 4's for instance: see [cluster.md](cluster.md). `controller` among
the roles makes it one of the quorum's controllers. `process.roles=broker,controller` without other controllers than
the node itself starts a broker that keeps its metadata itself, or in ZooKeeper with `zookeeper.connect`; it does not
open the listeners of `controller.listener.names`.

*Changeable* settings can be changed while the broker runs, for one broker or for all (`ottla config set`, or any
client's IncrementalAlterConfigs); the others need a restart. A size is in bytes, a time in the unit that ends its name.
"""


def configuration_page() -> str:
    """The whole page."""
    parts = [
        INTRODUCTION,
        "## Topics\n\nA topic's own setting wins over the broker's setting that gives its default.\n",
        _table(
            ("Setting", "Type", "Default", "Takes", "Broker's default", "Meaning"),
            (
                (
                    _name(topic.setting),
                    *_facts(topic.setting),
                    ", ".join(f"`{synonym.name}`" for synonym in topic.synonyms),
                    _meaning(topic.setting),
                )
                for topic in TOPIC_SETTINGS.values()
            ),
        ),
        "## Groups\n\nA group's own setting (`ottla config set group NAME ...`) wins over the broker's that gives its "
        "default, and must lie within the broker's bounds.\n",
        _table(
            ("Setting", "Type", "Default", "Takes", "Broker's default", "Broker's bounds", "Meaning"),
            (
                (
                    _name(group.setting),
                    *_facts(group.setting),
                    f"`{group.default}`" if group.default else "",
                    _bounds(group),
                    _meaning(group.setting),
                )
                for group in GROUP_SETTINGS.values()
            ),
        ),
        "## Brokers\n",
        _table(
            ("Setting", "Type", "Default", "Takes", "Changeable", "Meaning"),
            (
                (
                    _name(setting),
                    *_facts(setting),
                    _is_changeable(setting),
                    _meaning(setting),
                )
                for setting in BROKER_SETTINGS.values()
            ),
        ),
        "## Known, and not acted on\n",
        "Kafka 4.3 knows these. They are checked, named in a warning, described and changed as in Kafka, and left at "
        "that. Those that ask for protection are refused.\n",
        _table(
            ("Setting", "Type", "Kafka's default", "Changeable", "Meaning in Kafka"),
            (
                (_name(setting), *_facts(setting)[:2], _is_changeable(setting), setting.doc)
                for setting in OTHER_SETTINGS.values()
                if setting.name not in AUTHORIZER_SETTINGS  # acted on: see the introduction
            ),
        ),
    ]
    return "\n".join(parts)


def _name(setting: Setting) -> str:
    return f"`{setting.name}`"


def _facts(setting: Setting) -> tuple[str, str, str]:
    kind = setting.kind.name.lower()
    default = "" if setting.default is None else f"`{setting.default}`" if setting.default else "empty"
    return (f"{kind}, {setting.unit}" if setting.unit else kind, default, _cell(setting))


def _cell(setting: Setting) -> str:
    return "" if setting.limit is None else setting.limit.describe()


def _is_changeable(setting: Setting) -> str:
    return "no" if setting.change is Change.READ_ONLY else "yes"


def _bounds(group: GroupSetting) -> str:
    return ", ".join(f"`{name}`" for name in (group.least, group.most) if name is not None)


def _meaning(setting: Setting) -> str:
    return setting.doc if setting.acted_on else f"{setting.doc} *Kept, not acted on.*"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"
