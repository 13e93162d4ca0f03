"""What a server counts, in the words of Prometheus."""

from __future__ import annotations

import resource
import threading
from collections import defaultdict

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Histogram:
    """Counts of seconds up to each bound."""

    def __init__(self) -> None:
        self.counts, self.sum, self.count = [0] * len(BUCKETS), 0.0, 0

    def add(self, seconds: float) -> None:
        self.sum, self.count = self.sum + seconds, self.count + 1
        for i, bound in enumerate(BUCKETS):
            self.counts[i] += seconds <= bound

    def lines(self, name: str) -> list[str]:
        pairs = zip(BUCKETS, self.counts, strict=True)
        rows = [f'{name}_bucket{{le="{bound}"}} {count}' for bound, count in pairs]
        rows.append(f'{name}_bucket{{le="+Inf"}} {self.count}')
        return [*rows, f"{name}_sum {self.sum:.6f}", f"{name}_count {self.count}"]


def escaped(label: str) -> str:
    """A name as Prometheus wants it between quotes."""
    plain = label.encode("utf-8", "replace").decode()
    return plain.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class Metrics:
    """Counters of the whole server; what an engine has now is asked of it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.requests: dict[tuple[str, int], int] = defaultdict(int)
        self.tokens: dict[str, int] = defaultdict(int)
        self.first, self.each = Histogram(), Histogram()

    def answered(self, route: str, status: int) -> None:
        with self.lock:
            self.requests[route, status] += 1

    def wrote(self, kind: str, count: int) -> None:
        with self.lock:
            self.tokens[kind] += count

    def timed(self, first: float | None, each: float | None) -> None:
        """Seconds to the first token, and for each of those after it."""
        with self.lock:
            if first is not None:
                self.first.add(first)
            if each is not None:
                self.each.add(each)

    def text(self, loads: dict[str, dict[str, int]]) -> str:
        lines = ["# TYPE regard_requests_total counter"]
        with self.lock:
            for (route, status), count in sorted(self.requests.items()):
                lines.append(f'regard_requests_total{{route="{route}",status="{status}"}} {count}')
            lines.append("# TYPE regard_tokens_total counter")
            for kind, count in sorted(self.tokens.items()):
                lines.append(f'regard_tokens_total{{kind="{kind}"}} {count}')
            for name, histogram in (
                ("regard_time_to_first_token_seconds", self.first),
                ("regard_time_per_token_seconds", self.each),
            ):
                lines += [f"# TYPE {name} histogram", *histogram.lines(name)]
        for what in ("waiting", "running", "rows"):
            lines.append(f"# TYPE regard_{what} gauge")
            lines += [
                f'regard_{what}{{model="{escaped(m)}"}} {load[what]}' for m, load in loads.items()
            ]
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        lines += ["# TYPE regard_peak_memory_bytes gauge", f"regard_peak_memory_bytes {memory}"]
        return "\n".join(lines) + "\n"
