"""What each shipped alert warns of, as changes to the series that real processes serve; and Prometheus' rule tester.

minute   0 ... 59 | 60 ... 209 | 210 ... 359
         as it is | the trouble | as it is
         no alert | it fires    | it has ended
"""

import json
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from tests.support.requirements import require

BEFORE: Final = 10
TROUBLE: Final = 100
AFTER: Final = 70
A_DAY: Final = 24 * 6 + 1
OVER_DAYS: Final = ("OttlaPipelineStateGrows",)
"""Alerts that compare with the day before: their steps are ten minutes each, not one."""

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]
"""By name and labels."""


FIRING: Final = 'count(ALERTS{alertstate="firing"}) or vector(0)'


class Test(NamedTuple):
    """Values of series, one for each step; and what expressions give at a step."""

    inputs: Mapping[str, Sequence[float]]
    checks: Sequence[tuple[str, int, int]]


class Change(NamedTuple):
    """The values of series during the trouble. `per_minute`: what is added each minute; None: they are `level`.

    `keeps`: a counter, which stays where it came to.
    """

    metric: str
    only: Mapping[str, str]
    level: float = 0.0
    per_minute: float | None = None
    keeps: bool = False

    def values(self, usual: float, before: int) -> list[float]:
        """One for each minute."""
        begun = usual if self.per_minute is None or self.keeps else self.level
        trouble = [
            self.level if self.per_minute is None else begun + self.per_minute * (minute + 1)
            for minute in range(TROUBLE)
        ]
        return [usual] * before + trouble + [trouble[-1] if self.keeps else usual] * AFTER


def level(metric: str, value: float, **only: str) -> Change:
    """A gauge that goes there, and back."""
    return Change(metric, only, value)


def moving(metric: str, begin: float, per_minute: float, **only: str) -> Change:
    """A gauge that moves from there, minute by minute, and goes back."""
    return Change(metric, only, begin, per_minute)


def counting(metric: str, per_minute: float = 1.0, **only: str) -> Change:
    """A counter that rises, and stands still afterwards."""
    return Change(metric, only, per_minute=per_minute, keeps=True)


LAG: Final = "kafka_consumergroup_lag"
STATE: Final = "ottla_pipeline_flow_state"
FLOW: Final = {"flow": "hourly"}
STORIES: Final[Mapping[str, tuple[Change, ...]]] = {
    "OttlaProcessDown": (level("up", 0),),
    "OttlaFileDescriptorsShort": (level("process_open_fds", 1e12),),
    "OttlaErrorsLogged": (counting("ottla_log_messages_total", level="ERROR"),),
    "OttlaEventLoopDelayed": (level("ottla_event_loop_delay_seconds", 0.5, quantile="0.99"),),
    "OttlaProduceSlow": (level("kafka_network_requestmetrics_totaltimems", 2000, request="Produce", quantile="0.99"),),
    "OttlaRequestMemoryShort": (level("ottla_request_memory_bytes", 1e12),),
    "OttlaLogDirectoryFailed": (level("ottla_log_directory_online", 0),),
    "OttlaLogDirectoryFull": (level("ottla_log_directory_full", 1),),
    "OttlaLogDirectoryFillsUp": (moving("ottla_log_directory_free_bytes", 1e10, -6e7),),
    "OttlaUncleanableLogs": (level("ottla_uncleanable_logs", 3),),
    "OttlaNoController": (level("kafka_controller_kafkacontroller_activecontrollercount", 0),),
    "OttlaControllerBehind": (level("ottla_quorum_voter_lag_records", 500),),
    "OttlaBrokersFenced": (level("kafka_controller_kafkacontroller_fencedbrokercount", 1),),
    "OttlaOfflinePartitions": (level("kafka_controller_kafkacontroller_offlinepartitionscount", 2),),
    "OttlaUnderMinInSyncReplicas": (level("kafka_server_replicamanager_underminisrpartitioncount", 1),),
    "OttlaUnderReplicatedPartitions": (level("kafka_server_replicamanager_underreplicatedpartitions", 1),),
    "OttlaConsumerStuck": (level(LAG, 10),),
    "OttlaTransactionHangs": (level("ottla_oldest_transaction_records", 10),),
    "OttlaServerErrors": (counting("kafka_network_requestmetrics_errors_total", error="KAFKA_STORAGE_ERROR"),),
    "OttlaClientsThrottled": (counting("ottla_throttle_seconds_total", 60, kind="producer_byte_rate"),),
    "OttlaCompactionBehind": (
        level("ottla_compaction_dirty_ratio", 0.95),
        level("ottla_compaction_dirty_bytes", 2e9),
    ),
    "OttlaTransactionLate": (level("ottla_hanging_transactions", 1),),
    "OttlaShareRecordsComeAgain": (
        counting("ottla_share_group_redeliveries_total", 90),
        counting("ottla_share_group_deliveries_total", 100),
    ),
    "OttlaConnectTaskFailed": (level("kafka_connect_worker_connector_failed_task_count", 1, connector="strict"),),
    "OttlaConnectorFailed": (level("kafka_connect_connector_status", 1, status="failed", connector="lost"),),
    "OttlaConnectRecordsSkipped": (counting("kafka_connect_task_error_total_records_skipped"),),
    "OttlaConnectDeadLettersLost": (counting("kafka_connect_task_error_deadletterqueue_produce_failures"),),
    "OttlaConnectTaskRetries": (counting("kafka_connect_task_error_total_retries", 2),),
    "OttlaConnectBrokersAway": (level("ottla_connect_brokers_away", 1),),
    "OttlaConnectRebalances": (level("kafka_connect_worker_rebalance_rebalancing", 1),),
    "OttlaConnectNoLeader": (level("ottla_connect_worker_leads", 0),),
    "OttlaPipelineFlowFailed": (level(STATE, 1, state="failed"), level(STATE, 0, state="running")),
    "OttlaPipelineFlowWaits": (level(STATE, 1, state="waiting"), level(STATE, 0, state="running")),
    "OttlaPipelineRestarts": (counting("ottla_pipeline_restarts_total", 0.1),),
    "OttlaPipelineFallsBehind": (moving("ottla_pipeline_lag_seconds", 290, 30),),
    "OttlaPipelineStuck": (level("ottla_pipeline_lag_records", 500),),
    "OttlaPipelineWatermarkStands": (
        moving("ottla_pipeline_watermark_delay_seconds", 60, 60),
        counting("ottla_pipeline_records_total", 1000),
    ),
    "OttlaPipelineDeadLetters": (counting("ottla_pipeline_dead_letters_total", reason="has carrier"),),
    "OttlaPipelineStateGrows": (level("ottla_pipeline_state_bytes", 5e8),),
}
USUAL: Final = {
    "kafka_connect_connector_status": 0.0,  # a series of another state: absent but for the trouble
    "kafka_connect_worker_connector_failed_task_count": 0.0,
    LAG: 0.0,
    "ottla_event_loop_delay_seconds": 0.0,
    "kafka_network_requestmetrics_totaltimems": 1.0,
    "ottla_oldest_transaction_records": 0.0,
    "ottla_pipeline_lag_records": 0.0,
    "ottla_pipeline_lag_seconds": 0.0,
    "ottla_pipeline_watermark_delay_seconds": 60.0,
}
"""Values of healthy processes, where those that served the series are busy, or have just been in trouble."""


def series_of(exposition: str, instance: str) -> Series:
    """What Prometheus makes of a scrape."""
    found: Series = {("up", (("instance", instance), ("job", "ottla"))): 1.0}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            labels = {**sample.labels, "job": "ottla", "instance": instance}
            found[sample.name, tuple(sorted(labels.items()))] = USUAL.get(sample.name, sample.value)
    return found


def trouble_with(rules: Path, series: Series) -> str:
    """Run the story of each alert; returns what Prometheus' rule tester says of those that went another way.

    Each story has a file with the one rule that it is about: all rules at each step would take ten times as long.
    """
    text = rules.read_text(encoding="utf-8")
    said = [_said(text, _healthy(series), 1)]
    for alert, changes in STORIES.items():
        rule = re.search(rf" +- alert: {alert}\n(?: {{8}}.*\n)+", text)
        assert rule is not None, alert
        before, step_minutes = (A_DAY, 10) if alert in OVER_DAYS else (BEFORE, 1)
        story = _story(alert, changes, series, rule[0], before)
        said.append(_said(f"groups:\n  - name: one\n    rules:\n{rule[0]}", story, step_minutes))
    return "".join(said)


def _said(rules: str, test: Test, step_minutes: int) -> str:
    step = f"{step_minutes}m"
    inputs = [
        {"series": series, "values": " ".join(f"{value:.12g}" for value in values)}
        for series, values in test.inputs.items()
    ]
    checks = [
        {
            "expr": expression,
            "eval_time": f"{at * step_minutes}m",
            "exp_samples": [{"labels": "{}", "value": value}],
        }
        for expression, at, value in test.checks
    ]
    story = {"interval": step, "input_series": inputs, "promql_expr_test": checks}
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "test.yml")
        Path(directory, "rules.yml").write_text(rules, encoding="utf-8")
        content = {"rule_files": ["rules.yml"], "evaluation_interval": step, "tests": [story]}
        file.write_text(json.dumps(content), encoding="utf-8")  # JSON is YAML
        command = [require("promtool"), "test", "rules", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def _healthy(series: Series) -> Test:
    inputs = {_written(*key): [usual] * AFTER for key, usual in series.items()}
    return Test(inputs, [(FIRING, AFTER - 1, 0)])


def _story(alert: str, changes: Sequence[Change], series: Series, rule: str, before: int) -> Test:
    watched = rule.partition("labels: {")[0]
    inputs: dict[str, list[float]] = {}
    unmatched = list(changes)
    for (name, labels), usual in series.items():
        if not re.search(rf"\b{name}\b", watched):
            continue
        values = [usual] * (before + TROUBLE + AFTER)
        for change in changes:
            if name == change.metric and change.only.items() <= dict(labels).items():
                unmatched = [each for each in unmatched if each is not change]
                values = change.values(usual, before)
        inputs[_written(name, labels)] = values
    assert not unmatched, f"no process serves what {alert} watches: {unmatched}"
    fires = f'clamp_max(count(ALERTS{{alertname="{alert}", alertstate="firing"}}), 1) or vector(0)'
    ends = before + TROUBLE + AFTER - 1
    return Test(inputs, [(FIRING, before - 1, 0), (fires, before + TROUBLE - 1, 1), (fires, ends, 0)])


def _written(name: str, labels: tuple[tuple[str, str], ...]) -> str:
    return f"{name}{{{', '.join(f'{key}={json.dumps(value)}' for key, value in labels)}}}"
