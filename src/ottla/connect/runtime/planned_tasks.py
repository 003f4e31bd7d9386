"""Asks connectors for the configurations of their tasks, and fences tasks whose configuration changes."""

import logging
from collections.abc import Mapping

from confluent_kafka import KafkaException, Producer

from ottla.connect.errors import ConfigError, ConnectError, Retriable
from ottla.connect.herder.state import TaskId
from ottla.connect.runtime.connector_config import parsed, runtime_model, unknown_settings, with_defaults
from ottla.connect.runtime.plugins import check_paths, connector_class, kind_of
from ottla.connect.runtime.task import CONNECTOR_LOG, BasicContext, WorkerEnvironment
from ottla.connect.runtime.worker_settings import TRANSACTIONAL, client_settings


def tasks_of(name: str, stored: Mapping[str, str], environment: WorkerEnvironment) -> list[dict[str, str]]:
    """The configurations of a connector's tasks, with placeholders as stored. May take long: it runs the connector.

    Raises ConnectError, and whatever the connector raises.
    """
    config = environment.secrets.resolve(stored)
    connector = connector_class(config.get("connector.class"), environment.permissions)
    config = with_defaults(connector, config)
    runtime = parsed(runtime_model(connector), config)
    settings = parsed(connector.settings_model, config)
    check_paths(connector, settings, environment.permissions)
    environment.secrets.remember_passwords(settings)
    for sentence in unknown_settings(connector, stored):
        logging.getLogger(f"{CONNECTOR_LOG}.{name}").warning("setting without effect: %s", sentence)
    context = BasicContext(TaskId(name, -1), environment.client("admin", config))
    given = list(connector.tasks(settings, runtime.tasks_max, context))
    if len(given) > runtime.tasks_max:
        raise ConfigError(f"the connector has {len(given)} tasks, and tasks.max allows {runtime.tasks_max}")
    tasks = []
    for each in given:
        extra = {name: str(value) for name, value in each.items()}
        secret = environment.secrets.contained_in(extra)
        if secret is not None:
            raise ConnectError(f"the connector puts a secret into the setting {secret} of a task; its author must not")
        tasks.append({**stored, **extra, "task.class": f"{connector.__module__}.{connector.__qualname__}"})
    return tasks


def fence(task: TaskId, config: Mapping[str, str], environment: WorkerEnvironment) -> None:
    """Make sure that an old task writes nothing further with the configuration it had. Raises Retriable."""
    try:
        kind = kind_of(connector_class(config.get("connector.class"), environment.permissions))
    except ConfigError:
        return  # no task of it can run
    if not environment.settings.exactly_once or kind != "source":
        return
    transactional_id = f"{environment.settings.group_id}-{task.connector}-{task.task}"
    producer = Producer({**TRANSACTIONAL, **client_settings(environment.raw), "transactional.id": transactional_id})
    try:
        producer.init_transactions(30.0)
    except KafkaException as failure:
        raise Retriable(f"the former task {task} cannot be fenced: {failure.args[0].str()}") from None
