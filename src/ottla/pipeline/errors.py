"""The errors of jobs, in sentences for their authors and operators."""


class PipelineError(Exception):
    """A job cannot be run, stopped or shown; the text explains what happened and what to do."""


class JobError(PipelineError):
    """The job file cannot be used as it is written."""


class RunNotFoundError(PipelineError):
    """There is no run of that name."""


class AlreadyRunningError(PipelineError):
    """A process runs under that name already."""


class NotRunningError(PipelineError):
    """No process runs under that name."""


class CheckpointMismatchError(PipelineError):
    """The job has changed in a way that does not go with what its checkpoint holds."""
