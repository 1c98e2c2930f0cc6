"""``Message`` is one and the same class to its users, whichever kernels hold its fields."""

from __future__ import annotations

import copy
import dataclasses
import gc
import inspect
import os
import pickle
import subprocess
import sys
import weakref
from typing import Any

import pytest

from mqstore import Message, errors, kernels
from mqstore.kernels import pure
from mqstore.kernels.pure.message import MessageFields as PureFields

FULL: dict[str, Any] = {
    "topic": "orders",
    "body": b"body",
    "tags": "paid",
    "keys": ["o-1", "o-2"],
    "properties": {"a": "b"},
    "queue_id": 3,
    "delay_level": 4,
    "flag": 5,
    "sys_flag": 1,
    "born_timestamp_ms": 6,
    "born_host": "10.0.0.1:7",
    "reconsume_times": 8,
    "prepared_transaction_offset": 9,
    "wait_store_msg_ok": False,
}


def values(message: object) -> dict[str, Any]:
    return {name: getattr(message, name) for name in FULL}


@pytest.mark.parametrize("made", [kernels.MessageFields, PureFields, Message])
def test_every_field_by_name_and_by_position(made: Any) -> None:
    assert values(made(**FULL)) == values(made(*FULL.values())) == FULL
    assert values(made("t", b"")) == {
        **dict.fromkeys(FULL, 0),
        "topic": "t",
        "body": b"",
        "tags": None,
        "keys": (),
        "properties": {},
        "queue_id": None,
        "born_timestamp_ms": None,
        "born_host": None,
        "wait_store_msg_ok": True,
    }


@pytest.mark.parametrize("made", [kernels.MessageFields, PureFields, Message])
def test_messages_share_no_properties_and_refuse_what_they_do_not_have(made: Any) -> None:
    first, second = made("t", b""), made("t", b"")
    first.properties["a"] = "b"
    assert second.properties == {}
    assert made("t", b"", properties=None).properties is None  # said by somebody: refused when it is put
    for positions, names in ((("t",), {}), (("t", b""), {"tag": "x"}), ((*FULL.values(), 1), {})):
        with pytest.raises(TypeError):
            made(*positions, **names)
    with pytest.raises(AttributeError):
        first.body_size = 3


def test_the_constructors_agree() -> None:
    expected = list(inspect.signature(PureFields).parameters)
    assert [field.name for field in dataclasses.fields(Message)] == expected == list(FULL)
    assert list(Message.__match_args__) == expected


def test_it_is_a_dataclass_to_whoever_wants_one() -> None:
    message = Message(**FULL)
    assert dataclasses.asdict(message) == FULL
    assert dataclasses.replace(message, topic="other") == Message(**{**FULL, "topic": "other"})
    assert message == Message(**FULL) != Message("orders", b"body")
    assert repr(Message("t", b"x")).startswith("Message(topic='t', body=b'x', tags=None, keys=(), properties={}")
    assert eval(repr(message)) == message
    assert Message.__hash__ is None


def test_copies() -> None:
    message = Message(**FULL)
    for made in (copy.copy(message), copy.deepcopy(message), pickle.loads(pickle.dumps(message))):
        assert made == message
        assert type(made) is Message
    assert copy.copy(message).properties is message.properties
    assert copy.deepcopy(message).properties is not message.properties


def test_a_pickle_is_read_by_the_other_kernels() -> None:
    code = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read()).keys)"
    data = pickle.dumps(Message(**FULL))
    for is_pure in ("", "1"):
        found = subprocess.run(
            [sys.executable, "-c", code],
            input=data,
            capture_output=True,
            env=os.environ | {"MQSTORE_PURE": is_pure},
            check=True,
        )
        assert found.stdout.decode().strip() == str(FULL["keys"]), found.stderr


def test_a_message_that_refers_to_itself_is_collected() -> None:
    class Own(Message):
        pass

    message = Own("t", b"")
    message.properties["self"] = message  # type: ignore[assignment]
    gone = weakref.ref(message)
    del message
    gc.collect()
    assert gone() is None


def test_the_tail_takes_only_what_has_these_fields() -> None:
    if kernels.NAME == "native":
        with pytest.raises(errors.UsageError, match="messages of another class"):
            kernels.log_tail(dict, tuple, None, bytes(8), 100)
    assert kernels.log_tail(Message, tuple, None, bytes(8), 100).put(Message("t", b"")) is None
    assert pure.log_tail(Message, tuple, None, bytes(8), 100).put(Message("t", b"")) is None
