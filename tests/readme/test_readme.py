"""The README is true: its table and its examples are run against the shared server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.live import Live

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (?P<name>[^|]+) \| `(?P<command>.+)` \| `(?P<seen>[^`]+)` \|$", re.MULTILINE)
TABLE = [match.groupdict() for match in ROW.finditer(README.split("## The first hour")[1].split("\n## ")[0])]


def bash(script: str, cluster: Live) -> str:
    """Output of a README command, with its addresses replaced by the shared server's."""
    script = script.replace("http://127.0.0.1:8000", cluster.http).replace("127.0.0.1:9000", cluster.grpc)
    bin_folder = str(Path(sys.executable).parent)
    environ = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}", "SPECGROVE_SERVER": cluster.grpc}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environ, timeout=90, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_there_are_fifteen_things_to_try():
    """The table is read as a whole."""
    assert len(TABLE) >= 15


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row["name"])
def test_a_thing_to_try(cluster: Live, row: dict[str, str]):
    """Each command ends well and shows what the table says."""
    assert row["seen"] in bash(row["command"], cluster)


def test_the_curl_example(cluster: Live):
    """The first curl answers."""
    block = re.search(r"```\n(curl .+?)```", README, re.DOTALL)
    assert block is not None
    assert '"finish_reason"' in bash(block[1].replace("curl ", "curl -s ", 1), cluster)


def test_the_python_example(cluster: Live):
    """The gRPC example prints the answer."""
    block = re.search(r"```python\n(.+?)```", README, re.DOTALL)
    assert block is not None
    assert bash(f"python - <<'END'\n{block[1]}\nEND", cluster).strip()
