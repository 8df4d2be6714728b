"""What a small GPT learns of a text: dpbench's training in fp32, by two workers, against PyTorch's with
the same network, samples and settings. Rounding makes two trainings of them; `dpbench eval` has the
loss of both on the same held-out part of the text.
"""

import json
import shutil

import continuation
from safetensors.torch import load_file, save_file

STEPS = 120
WITHIN = 0.01  # of the loss
TEXT = "/usr/share/common-licenses"  # that every Debian has

CASE = continuation.Case(
    "gpt_tiny", continuation.gpt_tiny, "fp32",
    f"data.name=tokens data.path={TEXT} run.workers=2 run.batch=8 comm.name=shm "
    "optimizer.name=adamw optimizer.learning_rate=0.001 optimizer.weight_decay=0.1")


def evaluated(place, path):
    """The loss of the weights of a file."""
    text = place.run(str(place.build / "dpbench"), "eval", "-c", place.path("empty.ini"), "--json",
                     "model.name=gpt_tiny", "data.name=tokens", f"data.path={TEXT}",
                     f"checkpoint.load={path}")
    return json.loads(text)["eval"][-1]["loss"]


def compare(build):
    place = continuation.Workplace(build, CASE)
    try:
        place.settings = [s for s in place.settings if not s.startswith("data.samples=")]
        untrained, trained = place.path("untrained.safetensors"), place.path("trained.safetensors")
        # A rate at which no weight changes: the network as it is initialised.
        place.dpbench(1, "optimizer.learning_rate=1e-30", f"checkpoint.save={untrained}")
        result = place.dpbench(STEPS, f"checkpoint.save={trained}")
        theirs = continuation.Training(CASE, continuation.settings_of(result), place.batches(STEPS))
        theirs.module.load_state_dict({name: tensor for name, tensor in load_file(untrained).items()
                                       if not name.startswith("optimizer.")})
        theirs.train(STEPS)
        save_file(theirs.module.state_dict(), place.path("theirs.safetensors"))
        begun, ours, other = (evaluated(place, path) for path in
                              (untrained, trained, place.path("theirs.safetensors")))
        if not ours < 0.7 * begun or abs(ours / other - 1) > WITHIN:
            raise ValueError(f"loss {begun:.4f} untrained, {ours:.4f}, PyTorch's {other:.4f}")
        return f"loss {begun:.4f} untrained, {ours:.4f} after {STEPS} steps, PyTorch's {other:.4f}"
    finally:
        shutil.rmtree(place.directory)


def run_case(build):
    yield "loss on held-out text", lambda: compare(build)
