"""Counters, gauges and histograms that cost well under a microsecond to write.

prometheus_client's own types take a lock per increment, which is too dear on a device thread that writes a dozen
values a round. These hold plain numbers; `Family.collect` turns them into prometheus_client's families when somebody
asks. One thread writes, any thread may read: a reader may see a round half counted, never a torn number.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One metric family: what it counts, and the question it answers as a query."""

    name: str
    """Without the `_total` that counters get in the text form."""
    kind: Kind
    text: str
    ask: str
    """What to ask of it, in PromQL; `[w]` stands for a window such as `[5m]`."""
    labels: tuple[str, ...] = ()
    """Labels of its own, besides model_name and replica."""
    buckets: tuple[float, ...] = ()
    """Upper bounds in the metric's unit, ascending, without +Inf."""

    @property
    def help(self) -> str:
        """The HELP line: the sentence and the question."""
        return f"{self.text} Ask: {self.ask}"


class Number:
    """The value of one counter or gauge series."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def add(self, amount: float = 1) -> None:
        """Count `amount` more."""
        self.value += amount

    def set(self, value: float) -> None:
        """Replace the value (gauges)."""
        self.value = value


class Distribution:
    """The value of one histogram series: counts per bucket (the last one is +Inf) and the sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value; a bucket holds values up to its bound, bound included."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """(upper bound, values at or below it), ending with +Inf."""
        names = [*map(floatToGoString, self.bounds), "+Inf"]
        return list(zip(names, map(float, accumulate(self.counts)), strict=True))


Series: TypeAlias = Number | Distribution


@dataclass(slots=True)
class Family:
    """All series of one metric in this process, by the values of the metric's own labels."""

    spec: Spec
    base: tuple[str, str]
    """Values of model_name and replica."""
    series: dict[tuple[str, ...], Series] = field(default_factory=dict)

    def number(self, *labels: str) -> Number:
        """The counter or gauge series with these label values, made when it is new."""
        found = self.series.get(labels)
        if found is None:
            found = self.series[labels] = Number()
        assert isinstance(found, Number)
        return found

    def distribution(self, *labels: str) -> Distribution:
        """The histogram series with these label values, made when it is new."""
        found = self.series.get(labels)
        if found is None:
            found = self.series[labels] = Distribution(self.spec.buckets)
        assert isinstance(found, Distribution)
        return found

    def collect(self) -> Metric:
        """This family in prometheus_client's form, with the numbers of now."""
        names = ("model_name", "replica", *self.spec.labels)
        family: CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
        if self.spec.kind == "histogram":
            family = HistogramMetricFamily(self.spec.name, self.spec.help, labels=names)
        elif self.spec.kind == "counter":
            family = CounterMetricFamily(self.spec.name, self.spec.help, labels=names)
        else:
            family = GaugeMetricFamily(self.spec.name, self.spec.help, labels=names)
        for own, series in list(self.series.items()):  # a copy: the writer may add a series meanwhile
            values = (*self.base, *own)
            if isinstance(family, HistogramMetricFamily):
                assert isinstance(series, Distribution)
                family.add_metric(values, series.buckets(), series.total)
            else:
                assert isinstance(series, Number)
                family.add_metric(values, series.value)
        return family
