"""What a draft tells of its own pace: passes and their time, unless a prompt was computed in them too."""

from pathlib import Path

from tests.pairs import Silent, write_pair

from specgrove.core.prefix import PrefixHash
from specgrove.core.speculate import Committed, DraftPlan, DraftTree, Opened
from specgrove.draft.propose_loop import Outbox, ProposeLoop
from specgrove.draft.session import FEW_ROWS
from specgrove.engine.loader import EngineOptions, load


def grown(loop: ProposeLoop) -> DraftTree:
    """The next tree."""
    out = Outbox()
    while not out.by_target:
        loop.step(out)
    [[tree]] = out.by_target.values()
    assert isinstance(tree, DraftTree)
    return tree


def test_levels_are_told_and_prompts_are_not_levels(tmp_path: Path):
    """The first tree of a session comes with its prompt; later ones with their levels alone."""
    engine = load(str(write_pair(tmp_path, likeness=1.0)[1]), EngineOptions(dtype="float32", threads=1, kv_slots=4096))
    loop = ProposeLoop(engine, max_batched_tokens=64, observer=Silent())
    tokens = (5, 6, 7, 8) * FEW_ROWS
    plan = DraftPlan(branching=(2, 1, 1), max_nodes=6)
    loop.apply("t", [Opened(session=b"s", epoch=1, seq=0, tokens=tokens, plan=plan)], Outbox())
    first = grown(loop)

    prefix = PrefixHash((*tokens, 9))
    commit = Committed(session=b"s", epoch=1, seq=1, tokens=(9,), length=len(tokens) + 1, prefix_hash=prefix.value)
    loop.apply("t", [commit], Outbox())
    second = grown(loop)

    assert (first.levels, second.levels) == (0, 3)
    assert first.draft_s > 0
    assert second.draft_s > 0
