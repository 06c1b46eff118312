"""The clients' errors, and the public names."""

from __future__ import annotations

import subprocess
import sys
from inspect import isclass

import pytest

import kraftrio
import kraftrio.errors
from kraftrio.clients import errors
from kraftrio.clients.errors import (
    KafkaClientError,
    RetriableError,
    broker,
    error_class,
    error_for,
)
from kraftrio.wire.errors import ErrorCode, KafkaError


@pytest.mark.parametrize("code", [code for code in ErrorCode if code != ErrorCode.NONE])
def test_every_code_has_a_class_that_is_retriable_or_not(code: ErrorCode) -> None:
    """An error carries its code, says something, and is retriable exactly if the code is."""
    error = error_for(code)
    assert isinstance(error, KafkaError)
    assert error.code == code
    assert str(error) == code.text
    assert str(error_for(code, "what happened")) == "what happened"
    if code == ErrorCode.BROKER_NOT_AVAILABLE:
        assert error.retriable  # another broker may be asked
    else:
        assert error.retriable == isinstance(error, RetriableError) == code.retriable


def test_no_two_classes_of_brokers_have_the_same_code() -> None:
    """Else one of them would never be raised."""
    classes = [
        found
        for found in vars(broker).values()
        if isclass(found)
        and issubclass(found, KafkaClientError)
        and found.__module__ == broker.__name__
    ]
    assert len({found.default_code for found in classes}) == len(classes) > 70
    assert all(error_class(found.default_code) is found for found in classes)


def test_codes_of_tomorrow() -> None:
    """A code that is not known here counts as UNKNOWN_SERVER_ERROR and is named."""
    error = error_for(ErrorCode.of_peer(9999))
    assert error.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "9999" in str(error)


def test_errors_that_only_a_client_knows_are_not_made_of_codes() -> None:
    """A broker's INVALID_CONFIG is not a wrong setting of the client."""
    assert not issubclass(error_class(ErrorCode.INVALID_CONFIG), errors.ConfigError)
    assert not issubclass(error_class(ErrorCode.REQUEST_TIMED_OUT), errors.BufferExhaustedError)
    assert issubclass(errors.BufferExhaustedError, errors.TimedOutError)
    assert issubclass(errors.ConfigError, ValueError)


def test_all_errors_are_public() -> None:
    """`kraftrio.errors` has every class of the clients."""
    defined = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, KafkaClientError)
    }
    assert defined <= set(kraftrio.errors.__all__)
    for name in kraftrio.errors.__all__:
        assert getattr(kraftrio.errors, name) is getattr(errors, name)


def test_public_names() -> None:
    """The package offers what `__all__` says; other names are an AttributeError."""
    for name in kraftrio.__all__:
        assert getattr(kraftrio, name) is not None
        assert name in dir(kraftrio)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        kraftrio.Nothing  # noqa: B018


def test_a_broker_does_not_pay_for_the_clients() -> None:
    """Starting a node imports neither producer nor consumer nor admin client."""
    program = (
        "import sys, kraftrio.__main__, kraftrio.broker.node.node\n"
        "print([name for name in sys.modules if name.startswith('kraftrio.clients')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    for module in ("producer", "consumer", "admin", "cluster", "config", "errors"):
        assert f"'kraftrio.clients.{module}'" not in done.stdout
