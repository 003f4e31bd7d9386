"""Spark's errors as sentences, and which of them pass."""

import pytest

from ottla.pipeline.failures import explain, explain_python, is_passing

BROKER_AWAY = """\
[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed
Traceback (most recent call last):
  File "/x/pyspark/sql/streaming/python_streaming_source_runner.py", line 197, in main
    handle(reader)
ottla.spark.errors.SourceError: no broker at 127.0.0.1:9092 answers, asked about topic t (Local: Timed out)
 SQLSTATE: 38000
"""
USER_CODE = """\
Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times: org.apache.spark.api.python.PythonException:
Traceback (most recent call last):
  File "/jobs/orders.py", line 12, in double
    return 2 * int(text)
ValueError: invalid literal for int() with base 10: 'x'

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:572)
"""
ANALYSIS = """\
[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name `carier` cannot be resolved. \
Did you mean one of the following? [`carrier`, `dest`]. SQLSTATE: 42703;
'Project ['carier]
+- StreamingRelationV2 ottla
"""


def test_our_own_errors_are_sentences_already() -> None:
    assert explain(BROKER_AWAY) == "no broker at 127.0.0.1:9092 answers, asked about topic t (Local: Timed out)"


def test_the_last_python_error_counts() -> None:
    assert explain(USER_CODE) == "ValueError: invalid literal for int() with base 10: 'x'"


def test_other_errors_lose_their_class_state_and_plan() -> None:
    assert explain(ANALYSIS).startswith("A column, variable, or function parameter with name `carier` cannot be")
    assert "42703" not in explain(ANALYSIS)
    assert "Project" not in explain(ANALYSIS)


@pytest.mark.parametrize(
    "text",
    [
        BROKER_AWAY,
        "KafkaError{code=_TRANSPORT,val=-195}",
        "KafkaError{code=NOT_COORDINATOR}",
        "java.io.IOException: No space left on device",
        "Python worker failed to connect back",
        "ottla.pipeline.rows.registry.RegistryAwayError: ...",
        "ottla.spark.errors.NotReadyError: partition t-0 at h:1: ... (OFFSET_NOT_AVAILABLE)",
        "OperationalError: server closed the connection unexpectedly",
        "FATAL:  the database system is starting up",
        "Cannot start query with name shop.copies as a query with that name is already active in this SparkSession",
    ],
)
def test_what_passes(text: str) -> None:
    assert is_passing(text)


@pytest.mark.parametrize("text", [USER_CODE, ANALYSIS, "DataLossError: orders-0 ends at offset 3"])
def test_what_does_not(text: str) -> None:
    assert not is_passing(text)


def test_what_may_pass_is_tried_for_a_while() -> None:
    said = "ValueError: the lookup timed out"
    assert is_passing(said, tries=19)
    assert not is_passing(said, tries=20)
    assert is_passing(BROKER_AWAY, tries=1_000)


def test_errors_of_functions_come_with_their_line() -> None:
    def fails() -> None:
        raise KeyError("carrier")

    with pytest.raises(KeyError) as caught:
        fails()
    assert explain_python(caught.value).startswith("KeyError: 'carrier' (")
    assert explain_python(caught.value).endswith(")")
