"""Ranges of requests, the same behind every door."""

from __future__ import annotations

import math

import pytest

from specgrove.core.limits import check_request
from specgrove.core.request import GenerateRequest, Speculation
from specgrove.core.sampling import SamplingFields
from specgrove.errors import RequestError

WRONG = [
    ({"n": 0}, "n"),
    ({"n": 1000}, "n"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_tokens": 10**12}, "max_tokens"),
    ({"min_tokens": -1}, "min_tokens"),
    ({"logprobs": -1}, "logprobs"),
    ({"logprobs": 10_000}, "logprobs"),
    ({"timeout_s": 0.0}, "timeout_s"),
    ({"timeout_s": -1.0}, "timeout_s"),
    ({"timeout_s": math.nan}, "timeout_s"),
    ({"timeout_s": math.inf}, "timeout_s"),
    ({"speculation": Speculation(max_nodes=0)}, "speculation.max_nodes"),
    ({"speculation": Speculation(max_depth=-5)}, "speculation.max_depth"),
    ({"speculation": Speculation(branching=(2, 0))}, "speculation.branching"),
    ({"speculation": Speculation(branching=(1,) * 300)}, "speculation.branching"),
    ({"sampling": SamplingFields(allowed_token_ids=())}, "allowed_token_ids"),
    ({"stop": ("",)}, "stop"),
    ({"stop": ("x" * 5000,)}, "stop"),
    ({"stop": tuple(map(str, range(50)))}, "stop"),
    ({"stop_token_ids": tuple(range(300))}, "stop_token_ids"),
    ({"request_id": "x" * 5000}, "request_id"),
    ({"user": "x" * 5000}, "user"),
    ({"metadata": {str(i): "" for i in range(1000)}}, "metadata"),
    ({"metadata": {"k": "x" * 5000}}, "metadata"),
    ({"text": None, "tokens": ()}, "tokens"),
    ({"text": None, "messages": ()}, "messages"),
]


@pytest.mark.parametrize(("fields", "param"), WRONG)
def test_out_of_range_is_named(fields, param):
    """Nothing is ignored, and the sentence is about the field that is wrong."""
    with pytest.raises(RequestError, match=param) as caught:
        check_request(GenerateRequest(**{"request_id": "r", "model": "m", "text": "t"} | fields))

    assert caught.value.param == param


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"request_id": "x" * 128 + "-0123456789abcdef0123456789abcdef-1023"},
        {"n": 128, "max_tokens": 0, "logprobs": 0, "timeout_s": 1e-9},
        {"max_tokens": 1, "logprobs": 20, "stop": ("x",) * 16, "sampling": SamplingFields(banned_token_ids=())},
        {"speculation": Speculation(mode="off", max_nodes=1, max_depth=1), "metadata": {"k": "v"}, "user": ""},
    ],
)
def test_the_edges_pass(fields):
    """The least and the most that is allowed."""
    check_request(GenerateRequest(**{"request_id": "r", "model": "m", "text": "t"} | fields))
