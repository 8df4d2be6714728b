"""What torch_gpu.py lacks in this Python on this machine: exit 1 with a line that says it.

    torch_gpu_probe.py eager|graphed|default|compiled
"""

import os
import shutil
import sys


def missing(way):
    try:
        import torch
        import torchvision  # noqa: F401
    except ImportError as error:
        return (f"{sys.executable}: {error}: `make bench-deps` brings PyTorch and torchvision, or put a "
                "python3 that has them for CUDA first on the PATH")
    if not torch.version.cuda:
        return f"{sys.executable}: PyTorch {torch.__version__} was built without CUDA"
    if not torch.cuda.is_available():
        return f"{sys.executable}: PyTorch {torch.__version__} finds no GPU that it can use"
    if way in ("eager", "graphed"):
        return None
    try:
        import triton  # noqa: F401
    except ImportError as error:
        return f"{sys.executable}: {error}: torch.compile needs Triton for a GPU"
    if not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
        return "Triton needs a C compiler, and there is none on the PATH"
    return None


if __name__ == "__main__":
    sys.exit(missing(sys.argv[1]))
