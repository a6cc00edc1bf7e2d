from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ClaimTriggersRequest(_message.Message):
    __slots__ = ("worker_id", "max_tasks", "lease_duration_seconds", "queues", "claim_id", "wait_ms")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    MAX_TASKS_FIELD_NUMBER: _ClassVar[int]
    LEASE_DURATION_SECONDS_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    CLAIM_ID_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    max_tasks: int
    lease_duration_seconds: int
    queues: _containers.RepeatedScalarFieldContainer[str]
    claim_id: str
    wait_ms: int
    def __init__(self, worker_id: _Optional[str] = ..., max_tasks: _Optional[int] = ..., lease_duration_seconds: _Optional[int] = ..., queues: _Optional[_Iterable[str]] = ..., claim_id: _Optional[str] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class TaskPayload(_message.Message):
    __slots__ = ("trigger_id", "job_id", "tenant_id", "job_type", "payload_json", "scheduled_time_epoch", "attempt_id", "job_name", "attempt", "fencing_token", "idempotency_key", "trigger", "timeout_ms", "scheduled_time_ms", "lease_expires_ms", "traceparent")
    TRIGGER_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_TYPE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_JSON_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_TIME_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_NAME_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    FENCING_TOKEN_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    TRIGGER_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    trigger_id: str
    job_id: str
    tenant_id: str
    job_type: str
    payload_json: str
    scheduled_time_epoch: int
    attempt_id: str
    job_name: str
    attempt: int
    fencing_token: int
    idempotency_key: str
    trigger: str
    timeout_ms: int
    scheduled_time_ms: int
    lease_expires_ms: int
    traceparent: str
    def __init__(self, trigger_id: _Optional[str] = ..., job_id: _Optional[str] = ..., tenant_id: _Optional[str] = ..., job_type: _Optional[str] = ..., payload_json: _Optional[str] = ..., scheduled_time_epoch: _Optional[int] = ..., attempt_id: _Optional[str] = ..., job_name: _Optional[str] = ..., attempt: _Optional[int] = ..., fencing_token: _Optional[int] = ..., idempotency_key: _Optional[str] = ..., trigger: _Optional[str] = ..., timeout_ms: _Optional[int] = ..., scheduled_time_ms: _Optional[int] = ..., lease_expires_ms: _Optional[int] = ..., traceparent: _Optional[str] = ...) -> None: ...

class ClaimTriggersResponse(_message.Message):
    __slots__ = ("tasks",)
    TASKS_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[TaskPayload]
    def __init__(self, tasks: _Optional[_Iterable[_Union[TaskPayload, _Mapping]]] = ...) -> None: ...

class UpdateAttemptRequest(_message.Message):
    __slots__ = ("attempt_id", "trigger_id", "status", "error_message", "no_retry", "retry_after_ms", "too_early", "lease_duration_seconds", "gone", "worker_id", "claim_id")
    ATTEMPT_ID_FIELD_NUMBER: _ClassVar[int]
    TRIGGER_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    NO_RETRY_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    TOO_EARLY_FIELD_NUMBER: _ClassVar[int]
    LEASE_DURATION_SECONDS_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    CLAIM_ID_FIELD_NUMBER: _ClassVar[int]
    attempt_id: str
    trigger_id: str
    status: str
    error_message: str
    no_retry: bool
    retry_after_ms: int
    too_early: bool
    lease_duration_seconds: int
    gone: bool
    worker_id: str
    claim_id: str
    def __init__(self, attempt_id: _Optional[str] = ..., trigger_id: _Optional[str] = ..., status: _Optional[str] = ..., error_message: _Optional[str] = ..., no_retry: _Optional[bool] = ..., retry_after_ms: _Optional[int] = ..., too_early: _Optional[bool] = ..., lease_duration_seconds: _Optional[int] = ..., gone: _Optional[bool] = ..., worker_id: _Optional[str] = ..., claim_id: _Optional[str] = ...) -> None: ...

class UpdateAttemptResponse(_message.Message):
    __slots__ = ("success", "reason", "cancel")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    success: bool
    reason: str
    cancel: bool
    def __init__(self, success: _Optional[bool] = ..., reason: _Optional[str] = ..., cancel: _Optional[bool] = ...) -> None: ...

class WorkerMessage(_message.Message):
    __slots__ = ("hello", "credits", "outcomes", "heartbeats", "give_back", "stop", "alive")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    CREDITS_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    HEARTBEATS_FIELD_NUMBER: _ClassVar[int]
    GIVE_BACK_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    credits: AddCredits
    outcomes: Outcomes
    heartbeats: Heartbeats
    give_back: GiveBack
    stop: Stop
    alive: Alive
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., credits: _Optional[_Union[AddCredits, _Mapping]] = ..., outcomes: _Optional[_Union[Outcomes, _Mapping]] = ..., heartbeats: _Optional[_Union[Heartbeats, _Mapping]] = ..., give_back: _Optional[_Union[GiveBack, _Mapping]] = ..., stop: _Optional[_Union[Stop, _Mapping]] = ..., alive: _Optional[_Union[Alive, _Mapping]] = ...) -> None: ...

class SchedulerMessage(_message.Message):
    __slots__ = ("welcome", "runs", "outcomes", "heartbeats", "cancel", "stopped", "goodbye", "alive")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    HEARTBEATS_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    STOPPED_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    runs: Runs
    outcomes: OutcomesAnswered
    heartbeats: HeartbeatsAnswered
    cancel: Cancel
    stopped: Stopped
    goodbye: Goodbye
    alive: Alive
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., runs: _Optional[_Union[Runs, _Mapping]] = ..., outcomes: _Optional[_Union[OutcomesAnswered, _Mapping]] = ..., heartbeats: _Optional[_Union[HeartbeatsAnswered, _Mapping]] = ..., cancel: _Optional[_Union[Cancel, _Mapping]] = ..., stopped: _Optional[_Union[Stopped, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ..., alive: _Optional[_Union[Alive, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("worker_id", "queues", "credits", "lease_duration_seconds")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    CREDITS_FIELD_NUMBER: _ClassVar[int]
    LEASE_DURATION_SECONDS_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    queues: _containers.RepeatedScalarFieldContainer[str]
    credits: int
    lease_duration_seconds: int
    def __init__(self, worker_id: _Optional[str] = ..., queues: _Optional[_Iterable[str]] = ..., credits: _Optional[int] = ..., lease_duration_seconds: _Optional[int] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("alive_ms", "silence_ms", "delivery_lease_ms")
    ALIVE_MS_FIELD_NUMBER: _ClassVar[int]
    SILENCE_MS_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    alive_ms: int
    silence_ms: int
    delivery_lease_ms: int
    def __init__(self, alive_ms: _Optional[int] = ..., silence_ms: _Optional[int] = ..., delivery_lease_ms: _Optional[int] = ...) -> None: ...

class AddCredits(_message.Message):
    __slots__ = ("credits",)
    CREDITS_FIELD_NUMBER: _ClassVar[int]
    credits: int
    def __init__(self, credits: _Optional[int] = ...) -> None: ...

class Runs(_message.Message):
    __slots__ = ("tasks",)
    TASKS_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[TaskPayload]
    def __init__(self, tasks: _Optional[_Iterable[_Union[TaskPayload, _Mapping]]] = ...) -> None: ...

class AttemptOutcome(_message.Message):
    __slots__ = ("attempt_id", "ok", "error_message", "no_retry", "retry_after_ms", "too_early", "gone")
    ATTEMPT_ID_FIELD_NUMBER: _ClassVar[int]
    OK_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    NO_RETRY_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    TOO_EARLY_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    attempt_id: str
    ok: bool
    error_message: str
    no_retry: bool
    retry_after_ms: int
    too_early: bool
    gone: bool
    def __init__(self, attempt_id: _Optional[str] = ..., ok: _Optional[bool] = ..., error_message: _Optional[str] = ..., no_retry: _Optional[bool] = ..., retry_after_ms: _Optional[int] = ..., too_early: _Optional[bool] = ..., gone: _Optional[bool] = ...) -> None: ...

class Outcomes(_message.Message):
    __slots__ = ("id", "items", "credits")
    ID_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    CREDITS_FIELD_NUMBER: _ClassVar[int]
    id: int
    items: _containers.RepeatedCompositeFieldContainer[AttemptOutcome]
    credits: int
    def __init__(self, id: _Optional[int] = ..., items: _Optional[_Iterable[_Union[AttemptOutcome, _Mapping]]] = ..., credits: _Optional[int] = ...) -> None: ...

class OutcomeAnswer(_message.Message):
    __slots__ = ("trigger_id", "accepted", "reason")
    TRIGGER_ID_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    trigger_id: str
    accepted: bool
    reason: str
    def __init__(self, trigger_id: _Optional[str] = ..., accepted: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class OutcomesAnswered(_message.Message):
    __slots__ = ("id", "items")
    ID_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    id: int
    items: _containers.RepeatedCompositeFieldContainer[OutcomeAnswer]
    def __init__(self, id: _Optional[int] = ..., items: _Optional[_Iterable[_Union[OutcomeAnswer, _Mapping]]] = ...) -> None: ...

class AttemptHeartbeat(_message.Message):
    __slots__ = ("attempt_id", "lease_duration_seconds")
    ATTEMPT_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_DURATION_SECONDS_FIELD_NUMBER: _ClassVar[int]
    attempt_id: str
    lease_duration_seconds: int
    def __init__(self, attempt_id: _Optional[str] = ..., lease_duration_seconds: _Optional[int] = ...) -> None: ...

class Heartbeats(_message.Message):
    __slots__ = ("id", "items")
    ID_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    id: int
    items: _containers.RepeatedCompositeFieldContainer[AttemptHeartbeat]
    def __init__(self, id: _Optional[int] = ..., items: _Optional[_Iterable[_Union[AttemptHeartbeat, _Mapping]]] = ...) -> None: ...

class HeartbeatAnswer(_message.Message):
    __slots__ = ("trigger_id", "held", "cancel")
    TRIGGER_ID_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    trigger_id: str
    held: bool
    cancel: bool
    def __init__(self, trigger_id: _Optional[str] = ..., held: _Optional[bool] = ..., cancel: _Optional[bool] = ...) -> None: ...

class HeartbeatsAnswered(_message.Message):
    __slots__ = ("id", "items")
    ID_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    id: int
    items: _containers.RepeatedCompositeFieldContainer[HeartbeatAnswer]
    def __init__(self, id: _Optional[int] = ..., items: _Optional[_Iterable[_Union[HeartbeatAnswer, _Mapping]]] = ...) -> None: ...

class GiveBack(_message.Message):
    __slots__ = ("attempt_ids",)
    ATTEMPT_IDS_FIELD_NUMBER: _ClassVar[int]
    attempt_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, attempt_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class Cancel(_message.Message):
    __slots__ = ("attempt_ids",)
    ATTEMPT_IDS_FIELD_NUMBER: _ClassVar[int]
    attempt_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, attempt_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class Stop(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Stopped(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Alive(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
