"""The protos stand alone: a client generated from protos/ and nothing else can call the server."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from tests.rpc.fakes import TOKEN, FakeBackend, FakeHub, card

from specgrove.rpc.servers import GenerateServer, SpeculateServer

ROOT = Path(__file__).parents[2]

STRANGER = """
import sys
sys.path[:0] = [{stubs!r}, {packages!r}]
import grpc
from specgrove.v1 import common_pb2, generation_pb2 as g, generation_pb2_grpc
from specgrove.v1 import speculation_pb2 as s, speculation_pb2_grpc
assert not any(name.startswith("specgrove.") and not name.startswith("specgrove.v1") for name in sys.modules)

stub = generation_pb2_grpc.GenerationServiceStub(grpc.insecure_channel({generate!r}))
request = g.GenerateRequest(model="m", text="hello", max_tokens=2, sampling=g.SamplingFields(temperature=0))
print([reply.WhichOneof("event") for reply in stub.Generate(request)])
print(stub.ListModels(g.ListModelsRequest()).models[0].name)
print(list(stub.Tokenize(g.TokenizeRequest(model="m", text="a")).tokens))
try:
    list(stub.Generate(g.GenerateRequest(model="m")))
except grpc.RpcError as error:
    print(error.code().name, error.details())

hello = s.Hello(card=common_pb2.ReplicaCard(replica="d", role=common_pb2.REPLICA_ROLE_DRAFT), cluster_token={token!r})
stream = speculation_pb2_grpc.SpeculationServiceStub(grpc.insecure_channel({speculate!r})).Speculate(
    iter([s.SpeculateRequest(hello=hello)])
)
print(next(stream).welcome.card.replica)
"""


@pytest.fixture
def stubs(tmp_path):
    """Python code generated from protos/ in an empty folder."""
    protos = sorted(str(path) for path in (ROOT / "protos").rglob("*.proto"))
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT / 'protos'}", f"--python_out={tmp_path}"]
    subprocess.run([*command, f"--grpc_python_out={tmp_path}", *protos], check=True)
    return tmp_path


async def test_a_client_generated_from_the_protos_alone_works(stubs):
    """In a process that cannot import anything of ours."""
    generate, speculate = GenerateServer(FakeBackend()), SpeculateServer(FakeHub(), card("t0", "target"))
    script = STRANGER.format(
        stubs=str(stubs),
        packages=sysconfig.get_path("purelib"),
        generate=await generate.start(),
        speculate=await speculate.start(),
        token=TOKEN,
    )
    # -S: without it the editable install would put our own package first.
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-S",
        "-c",
        script,
        cwd=stubs,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await child.communicate()
    await generate.stop()
    await speculate.stop()

    assert child.returncode == 0, err.decode()
    assert out.decode().splitlines() == [
        "['started', 'chunk', 'chunk', 'choice_finished', 'finished']",
        "m",
        "[1, 97]",
        "INVALID_ARGUMENT a request needs a prompt: set text, tokens or chat",
        "t0",
    ]


def test_every_service_and_call_is_described():
    """The protos are the documentation of the wire; a service or call without a word is none."""
    for path in (ROOT / "protos").rglob("*.proto"):
        lines = path.read_text().splitlines()
        for above, line in zip(["", *lines], lines, strict=False):
            if line.lstrip().startswith(("service ", "rpc ")):
                assert above.lstrip().startswith("//"), f"{path.name}: {line}"
