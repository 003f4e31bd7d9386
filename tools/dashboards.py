"""The Grafana dashboards of `deploy/grafana`, written from a short description of each panel.

`python -m tools.dashboards` writes the files; a test holds them equal to what this makes, and asks a real Prometheus
every query.
"""

import json
from typing import Any, Final, NamedTuple

from tools.docs.markdown import ROOT

FOLDER: Final = ROOT / "deploy" / "grafana"
SOURCE: Final = {"type": "prometheus", "uid": "${source}"}
WIDTH: Final = 12
HEIGHT: Final = 8
COLUMNS: Final = 24 // WIDTH
RATE: Final = "$__rate_interval"
TOPICS: Final = "kafka_server_brokertopicmetrics"


class Panel(NamedTuple):
    """A plot: its title, Grafana's unit, and queries by the legend of their series."""

    title: str
    unit: str
    queries: dict[str, str]


def _rate(metric: str, by: str, only: str = "") -> str:
    return f"sum by ({by}) (rate({metric}{{job=~'$job'{only}}}[{RATE}]))"


def _value(metric: str, by: str, only: str = "") -> str:
    return f"sum by ({by}) ({metric}{{job=~'$job'{only}}})"


def _max(metric: str, by: str) -> str:
    return f"max by ({by}) ({metric}{{job=~'$job'}})"


def _count(metric: str, by: str, only: str = "") -> str:
    return f"count by ({by}) ({metric}{{job=~'$job'{only}}})"


RAFT: Final = "kafka_server_raftmetrics"
ACTIVE: Final = "kafka_controller_kafkacontroller"
OF_CONTROLLERS: Final = f" and on (instance) {RAFT}_current_epoch{{job=~'$job'}}"
EACH_FLOW: Final = "{{run}} {{flow}}"
ALL_TOPICS: Final = ", topic=''"
EACH_TOPIC: Final = ", topic=~'$topic', topic!=''"

DASHBOARDS: Final = {
    "broker": (
        Panel(
            "Bytes in and out",
            "Bps",
            {
                "{{instance}} in": _rate(f"{TOPICS}_bytesin_total", "instance", ALL_TOPICS),
                "{{instance}} out": _rate(f"{TOPICS}_bytesout_total", "instance", ALL_TOPICS),
            },
        ),
        Panel("Records in", "cps", {"{{instance}}": _rate(f"{TOPICS}_messagesin_total", "instance", ALL_TOPICS)}),
        Panel(
            "Requests",
            "reqps",
            {"{{request}}": _rate("kafka_network_requestmetrics_requests_total", "request")},
        ),
        Panel(
            "Produce and fetch, 99th percentile",
            "ms",
            {
                "{{instance}} {{request}}": (
                    "max by (instance, request) (kafka_network_requestmetrics_totaltimems"
                    "{job=~'$job', quantile='0.99', request=~'Produce|Fetch'})"
                )
            },
        ),
        Panel(
            "Event loop delay, 99th percentile",
            "s",
            {"{{instance}}": "max by (instance) (ottla_event_loop_delay_seconds{job=~'$job', quantile='0.99'})"},
        ),
        Panel("Processor", "percentunit", {"{{instance}}": _rate("process_cpu_seconds_total", "instance")}),
        Panel(
            "Memory",
            "bytes",
            {
                "{{instance}} resident": _value("process_resident_memory_bytes", "instance"),
                "{{instance}} requests and replies": _value("ottla_request_memory_bytes", "instance"),
            },
        ),
        Panel(
            "Connections",
            "short",
            {
                "{{instance}} {{listener}}": _value(
                    "kafka_server_socketservermetrics_connection_count", "instance, listener"
                )
            },
        ),
        Panel(
            "Time of a round of fdatasync",
            "s",
            {
                "{{instance}} {{directory}}": (
                    f"rate(ottla_group_commit_seconds_sum{{job=~'$job'}}[{RATE}]) "
                    f"/ rate(ottla_group_commit_seconds_count{{job=~'$job'}}[{RATE}])"
                )
            },
        ),
        Panel(
            "Room in log directories",
            "bytes",
            {"{{instance}} {{directory}}": _value("ottla_log_directory_free_bytes", "instance, directory")},
        ),
        Panel(
            "Errors and warnings logged",
            "short",
            {
                "{{instance}} {{level}}": (
                    "sum by (instance, level) (increase(ottla_log_messages_total"
                    f"{{job=~'$job', level=~'WARNING|ERROR|CRITICAL'}}[{RATE}]))"
                )
            },
        ),
        Panel(
            "Errors in answers",
            "cps",
            {"{{request}} {{error}}": _rate("kafka_network_requestmetrics_errors_total", "request, error")},
        ),
        Panel(
            "Throttling",
            "s",
            {"{{instance}} {{kind}}": _rate("ottla_throttle_seconds_total", "instance, kind")},
        ),
        Panel(
            "To compact",
            "bytes",
            {"{{instance}}": _value("ottla_compaction_debt_bytes", "instance")},
        ),
        Panel(
            "Memory by owner",
            "bytes",
            {"{{instance}} {{owner}}": _value("ottla_memory_bytes", "instance, owner")},
        ),
    ),
    "topics": (
        Panel("Records in", "cps", {"{{topic}}": _rate(f"{TOPICS}_messagesin_total", "topic", EACH_TOPIC)}),
        Panel("Bytes in", "Bps", {"{{topic}}": _rate(f"{TOPICS}_bytesin_total", "topic", EACH_TOPIC)}),
        Panel("Bytes out", "Bps", {"{{topic}}": _rate(f"{TOPICS}_bytesout_total", "topic", EACH_TOPIC)}),
        Panel("Size, all replicas", "bytes", {"{{topic}}": _value("ottla_topic_size_bytes", "topic", EACH_TOPIC)}),
        Panel(
            "Records between the oldest and the newest",
            "short",
            {
                "{{topic}}": (
                    "sum by (topic) (kafka_topic_partition_current_offset{job=~'$job', topic=~'$topic'} "
                    "- kafka_topic_partition_oldest_offset{job=~'$job', topic=~'$topic'})"
                )
            },
        ),
        Panel(
            "Partitions",
            "short",
            {"{{topic}}": "max by (topic) (kafka_topic_partitions{job=~'$job', topic=~'$topic'})"},
        ),
    ),
    "groups": (
        Panel("Lag", "short", {"{{consumergroup}}": _value("kafka_consumergroup_lag", "consumergroup")}),
        Panel(
            "Lag by topic",
            "short",
            {"{{consumergroup}} {{topic}}": _value("kafka_consumergroup_lag", "consumergroup, topic")},
        ),
        Panel(
            "Progress",
            "cps",
            {
                "{{consumergroup}} {{topic}}": (
                    f"sum by (consumergroup, topic) (rate(kafka_consumergroup_current_offset{{job=~'$job'}}[{RATE}]))"
                )
            },
        ),
        Panel("Groups by state", "short", {"{{type}} {{state}}": _value("ottla_groups", "type, state")}),
        Panel("Open transactions", "short", {"{{instance}}": _value("ottla_open_transactions", "instance")}),
        Panel(
            "Records held back by transactions",
            "short",
            {"{{instance}}": _value("ottla_oldest_transaction_records", "instance")},
        ),
        Panel("Hanging transactions", "short", {"{{instance}}": _value("ottla_hanging_transactions", "instance")}),
        Panel("Share partitions", "short", {"{{instance}}": _value("ottla_share_partitions", "instance")}),
        Panel(
            "Records that members of share groups hold",
            "short",
            {"{{group}}": _value("ottla_share_group_records_in_flight", "group")},
        ),
        Panel(
            "Records given to share groups",
            "cps",
            {
                "{{group}}": _rate("ottla_share_group_deliveries_total", "group"),
                "{{group}} again": _rate("ottla_share_group_redeliveries_total", "group"),
            },
        ),
    ),
    "cluster": (
        Panel("Brokers", "short", {"brokers": "max(kafka_brokers{job=~'$job'})"}),
        Panel(
            "Controllers",
            "short",
            {"controllers": "sum(kafka_controller_kafkacontroller_activecontrollercount{job=~'$job'})"},
        ),
        Panel(
            "Partitions without a leader",
            "short",
            {"offline": "sum(kafka_controller_kafkacontroller_offlinepartitionscount{job=~'$job'})"},
        ),
        Panel(
            "Under-replicated partitions",
            "short",
            {"{{instance}}": _value("kafka_server_replicamanager_underreplicatedpartitions", "instance")},
        ),
        Panel(
            "Partitions below min.insync.replicas",
            "short",
            {"{{instance}}": _value("kafka_server_replicamanager_underminisrpartitioncount", "instance")},
        ),
        Panel("Leaders", "short", {"{{instance}}": _value("kafka_server_replicamanager_leadercount", "instance")}),
        Panel(
            "Follower lag",
            "short",
            {"replica {{replica}}": "max by (replica) (ottla_follower_lag_records{job=~'$job'})"},
        ),
        Panel(
            "Replication in",
            "Bps",
            {"{{instance}}": _rate(f"{TOPICS}_replicationbytesin_total", "instance", ALL_TOPICS)},
        ),
    ),
    "controllers": (
        Panel("Roles", "short", {"{{instance}} {{state}}": _max(f"{RAFT}_current_state", "instance, state")}),
        Panel("Epoch", "short", {"{{instance}}": _max(f"{RAFT}_current_epoch", "instance")}),
        Panel(
            "Leader that each controller knows",
            "short",
            {"{{instance}}": _max(f"{RAFT}_current_leader", "instance")},
        ),
        Panel("Lag of voters", "short", {"voter {{voter}}": _max("ottla_quorum_voter_lag_records", "voter")}),
        Panel(
            "Metadata that is not committed yet, or not applied",
            "short",
            {
                "{{instance}} not committed": (
                    f"max by (instance) ({RAFT}_log_end_offset{{job=~'$job'}} - {RAFT}_high_watermark{{job=~'$job'}})"
                ),
                "{{instance}} not applied": (
                    f"max by (instance) ({RAFT}_high_watermark{{job=~'$job'}} "
                    f"- {ACTIVE}_lastappliedrecordoffset{{job=~'$job'}} - 1)"
                ),
            },
        ),
        Panel(
            "Records of metadata",
            "cps",
            {"committed": f"max(deriv({RAFT}_high_watermark{{job=~'$job'}}[5m]))"},
        ),
        Panel(
            "Brokers",
            "short",
            {
                "alive": f"max({ACTIVE}_activebrokercount{{job=~'$job'}})",
                "fenced": f"max({ACTIVE}_fencedbrokercount{{job=~'$job'}})",
            },
        ),
        Panel(
            "Partitions without a leader, or not led by the first replica",
            "short",
            {
                "offline": f"sum({ACTIVE}_offlinepartitionscount{{job=~'$job'}})",
                "not led by the first replica": f"sum({ACTIVE}_preferredreplicaimbalancecount{{job=~'$job'}})",
            },
        ),
        Panel(
            "Topics and partitions",
            "short",
            {
                "topics": f"sum({ACTIVE}_globaltopiccount{{job=~'$job'}})",
                "partitions": f"sum({ACTIVE}_globalpartitioncount{{job=~'$job'}})",
            },
        ),
        Panel(
            "Requests to controllers",
            "reqps",
            {
                "{{instance}} {{request}}": (
                    _rate("kafka_network_requestmetrics_requests_total", "instance, request") + OF_CONTROLLERS
                )
            },
        ),
        Panel(
            "Event loop delay, 99th percentile",
            "s",
            {
                "{{instance}}": (
                    "max by (instance) (ottla_event_loop_delay_seconds{job=~'$job', quantile='0.99'})" + OF_CONTROLLERS
                )
            },
        ),
        Panel(
            "Memory",
            "bytes",
            {"{{instance}}": _value("process_resident_memory_bytes", "instance") + OF_CONTROLLERS},
        ),
    ),
    "connect": (
        Panel(
            "Tasks by state", "short", {"{{status}}": _count("kafka_connect_connector_status", "status", ", task!=''")}
        ),
        Panel("Workers", "short", {"workers": "count(kafka_connect_worker_task_count{job=~'$job'})"}),
        Panel(
            "Records read by sources",
            "cps",
            {"{{connector}}": _value("kafka_connect_source_task_source_record_poll_rate", "connector")},
        ),
        Panel(
            "Records written by sources",
            "cps",
            {"{{connector}}": _value("kafka_connect_source_task_source_record_write_rate", "connector")},
        ),
        Panel(
            "Records taken by targets",
            "cps",
            {"{{connector}}": _value("kafka_connect_sink_task_sink_record_send_rate", "connector")},
        ),
        Panel(
            "Time for a batch, mean and longest",
            "ms",
            {
                "{{connector}} mean": _max("kafka_connect_sink_task_put_batch_avg_time_ms", "connector"),
                "{{connector}} longest": _max("kafka_connect_sink_task_put_batch_max_time_ms", "connector"),
            },
        ),
        Panel(
            "Commits, mean and longest",
            "ms",
            {
                "{{connector}} mean": _max("kafka_connect_connector_task_offset_commit_avg_time_ms", "connector"),
                "{{connector}} longest": _max("kafka_connect_connector_task_offset_commit_max_time_ms", "connector"),
            },
        ),
        Panel(
            "Refused records and dead letters",
            "cps",
            {
                "{{connector}} refused": _rate("kafka_connect_task_error_total_record_failures", "connector"),
                "{{connector}} dead letters": _rate(
                    "kafka_connect_task_error_deadletterqueue_produce_requests", "connector"
                ),
            },
        ),
        Panel("Attempts", "cps", {"{{connector}}": _rate("kafka_connect_task_error_total_retries", "connector")}),
        Panel(
            "Time since the last delivery of a source",
            "s",
            {"{{connector}}": _max("ottla_connect_source_delivery_age_seconds", "connector")},
        ),
    ),
    "pipeline": (
        Panel("Records", "cps", {EACH_FLOW: _value("ottla_pipeline_records_per_second", "run, flow")}),
        Panel("Lag", "short", {EACH_FLOW: _value("ottla_pipeline_lag_records", "run, flow")}),
        Panel("Lag in time", "s", {EACH_FLOW: _max("ottla_pipeline_lag_seconds", "run, flow")}),
        Panel("Last micro-batch", "s", {EACH_FLOW: _max("ottla_pipeline_batch_duration_seconds", "run, flow")}),
        Panel("Watermark behind now", "s", {EACH_FLOW: _max("ottla_pipeline_watermark_delay_seconds", "run, flow")}),
        Panel("Rows of state", "short", {EACH_FLOW: _value("ottla_pipeline_state_rows", "run, flow")}),
        Panel("Memory of state", "bytes", {EACH_FLOW: _value("ottla_pipeline_state_bytes", "run, flow")}),
        Panel(
            "Dead letters by reason",
            "cps",
            {"{{run}} {{reason}}": _rate("ottla_pipeline_dead_letters_total", "run, reason")},
        ),
        Panel(
            "Late rows, and broken expectations",
            "cps",
            {
                "{{run}} {{flow}} late": _rate("ottla_pipeline_late_rows_total", "run, flow"),
                "{{run}} {{expectation}}": _rate("ottla_pipeline_broken_expectations_total", "run, expectation"),
            },
        ),
        Panel(
            "Flows that do not run, and starts",
            "short",
            {
                "{{run}} {{flow}} {{state}}": _value(
                    "ottla_pipeline_flow_state", "run, flow, state", ", state=~'waiting|failed'"
                ),
                "{{run}} {{flow}} started again": _value("ottla_pipeline_restarts_total", "run, flow"),
            },
        ),
    ),
}


def dashboard(name: str) -> dict[str, Any]:
    """The dashboard of this name, as Grafana imports it."""
    return {
        "uid": f"ottla-{name}",
        "title": f"Ottla: {name}",
        "tags": ["ottla"],
        "schemaVersion": 38,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _variables(name)},
        "panels": [_panel(number, panel) for number, panel in enumerate(DASHBOARDS[name])],
    }


def _variables(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
        _query("job", "label_values(ottla_build_info, job)"),
    ]
    if name == "topics":
        found.append(_query("topic", "label_values(kafka_topic_partitions{job=~'$job'}, topic)"))
    return found


def _query(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": SOURCE,
        "query": query,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "refresh": 2,
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": SOURCE,
        "gridPos": {
            "x": number % COLUMNS * WIDTH,
            "y": number // COLUMNS * HEIGHT,
            "w": WIDTH,
            "h": HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": SOURCE, "expr": query, "legendFormat": legend}
            for index, (legend, query) in enumerate(panel.queries.items())
        ],
    }


def text(name: str) -> str:
    """The file of a dashboard."""
    return json.dumps(dashboard(name), indent=1) + "\n"


if __name__ == "__main__":
    for each in DASHBOARDS:
        (FOLDER / f"{each}.json").write_text(text(each), encoding="utf-8")
