#!/bin/sh
# needs: plain
#
# tools/find-cuda and what `make` says by it, with toolkits that are made here: an nvcc that prints its
# release, headers of one line, empty libraries. Run from the top of the tree.
. tests/lib/verdict.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
root=$PWD

same() { # TEXT WANTED GOT
    verdict "$1" "$([ "$2" = "$3" ] || printf 'wanted: %s\ngot:    %s\n' "$2" "$3")"
}

nvcc() { # DIRECTORY RELEASE
    mkdir -p "$1/bin"
    printf '#!/bin/sh\necho "Cuda compilation tools, release %s, V%s.1"\n' "$2" "$2" >"$1/bin/nvcc"
    chmod +x "$1/bin/nvcc"
}

part() { # HEADER-DIRECTORY LIBRARY HEADER DEFINITION...
    mkdir -p "$1" "${2%/*}"
    : >"$2"
    header=$1/$3
    shift 3
    printf '#define %s\n' "$@" >"$header"
}

cudart() { part "$1" "$2" cuda_runtime_api.h "CUDART_VERSION  $3"; }
cublaslt() { part "$1" "$2" cublasLt.h LT && echo "#define CUBLAS_VER_MAJOR $3" >"$1/cublas_api.h"; }
cudnn() { part "$1" "$2" cudnn.h DNN && echo "#define CUDNN_MAJOR $3" >"$1/cudnn_version.h"; }
nccl() { part "$1" "$2" nccl.h "NCCL_MAJOR $3"; }

# Nothing of this machine's but the shell's tools; a python3 that knows of no packages.
mkdir "$work/bin"
for tool in sh sed head dirname readlink make cat tr grep find pkg-config; do
    ln -s "$(command -v $tool)" "$work/bin/$tool"
done
find_cuda() { # NAME=VALUE... TREE: in one line, without $work
    found=$(cd "$work" && env -i PATH="$work/bin" CUDA_ROOTS="$work/local" "$1" "$root/tools/find-cuda" "$2")
    echo "$found" | tr '\n' ' ' | sed "s|$work/||g; s/ *\$//"
}

same "nothing there" "" "$(find_cuda A=1 "$work/tree")"

nvcc "$work/local" 12.6
same "a toolkit that is too old" "TOO_OLD=local/bin/nvcc,12.6" "$(find_cuda A=1 "$work/tree")"

# As PyPI's wheels are unpacked: libraries have no name without a number.
tree=$work/tree/nvidia
nvcc "$tree/cu13" 13.0
cudart "$tree/cu13/include" "$tree/cu13/lib/libcudart.so.13" 13000
cublaslt "$tree/cu13/include" "$tree/cu13/lib/libcublasLt.so.13" 13
cudnn "$tree/cudnn/include" "$tree/cudnn/lib/libcudnn.so.9" 9
nccl "$tree/nccl/include" "$tree/nccl/lib/libnccl.so.2" 2
wheels="NVCC=tree/nvidia/cu13/bin/nvcc RELEASE=13.0\
 CUDART_H=tree/nvidia/cu13/include CUDART_SO=tree/nvidia/cu13/lib/libcudart.so.13\
 CUBLASLT_H=tree/nvidia/cu13/include CUBLASLT_SO=tree/nvidia/cu13/lib/libcublasLt.so.13\
 CUDNN_H=tree/nvidia/cudnn/include CUDNN_SO=tree/nvidia/cudnn/lib/libcudnn.so.9\
 NCCL_H=tree/nvidia/nccl/include NCCL_SO=tree/nvidia/nccl/lib/libnccl.so.2"
same "the wheels, where the installed one is too old" "$wheels" "$(find_cuda A=1 "$work/tree")"

# An installed toolkit comes first; what it lacks comes from the wheels, its own release alone.
nvcc "$work/local" 12.9
cudart "$work/local/include" "$work/local/lib64/libcudart.so" 12090
cublaslt "$work/local/include" "$work/local/lib64/libcublasLt.so" 12
same "an installed toolkit without cuDNN and NCCL" "NVCC=local/bin/nvcc RELEASE=12.9\
 CUDART_H=local/include CUDART_SO=local/lib64/libcudart.so CUBLASLT_H=local/include\
 CUBLASLT_SO=local/lib64/libcublasLt.so ${wheels#*CUBLASLT_SO=*.13 }" "$(find_cuda A=1 "$work/tree")"
rm "$work/local/lib64/libcudart.so"
cudnn "$work/local/include" "$work/local/lib64/libcudnn.so" 8
same "other releases are not taken" "NVCC=local/bin/nvcc RELEASE=12.9 CUBLASLT_H=local/include\
 CUBLASLT_SO=local/lib64/libcublasLt.so ${wheels#*CUBLASLT_SO=*.13 }" "$(find_cuda A=1 "$work/tree")"

# PyTorch's packages, in a venv; CUDA_HOME before all others.
mkdir -p "$work/venv/lib/python3.11/site-packages"
mv "$tree" "$work/venv/lib/python3.11/site-packages/nvidia"
nvcc "$work/home" 13.1
torch=venv/lib/python3.11/site-packages/nvidia
same "libraries of a PyTorch for an nvcc without any" "NVCC=home/bin/nvcc RELEASE=13.1\
 $(echo "${wheels#* RELEASE=13.0 }" | sed "s|tree/nvidia|$torch|g")" \
    "$(find_cuda "CUDA_HOME=$work/home" "$work/venv")"

# What make makes of it.
said() { # NAME=VALUE MAKE-VARIABLE...
    first=$1
    shift
    env -i PATH="$work/bin" CUDA_ROOTS="$work/local" "$first" make -n BUILD="$work/build" "$@" \
        all 2>&1 | sed -n 's/^mk.cuda.mk:[0-9]*: \*\*\* //p' | sed "s|$work/||g"
}
if [ -e plugins/devices/cuda ]; then
    rm -r "$work/local/bin"
    same "no toolkit" "CUDA=yes, but there was no CUDA toolkit at build time; \`make deps CUDA=yes\`\
 brings one from PyPI.  Stop." "$(said A=1 CUDA=yes)"
    nvcc "$work/local" 11.8
    same "a toolkit that is too old, for make" "CUDA=yes, but local/bin/nvcc is release 11.8, and 12.8\
 is the first that will do; \`make deps CUDA=yes\` brings 13.0 from PyPI.  Stop." "$(said A=1 CUDA=yes)"
    same "libraries that are missing" "CUDA=yes, but home/bin/nvcc was there at build time but not the\
 CUDA runtime, cuDNN 9, cuBLASLt; \`make deps CUDA=yes\` brings it from PyPI.  Stop." \
        "$(said "CUDA_HOME=$work/home" CUDA=yes)"
fi

# What of it goes into the program.
same "the list of what was not built" 'NOT_BUILT(DEVICE, "cuda", "no \"nvcc\"")
NOT_BUILT(COMM, "nccl", "CUDA=no")' \
    "$(tools/not-built 'device cuda' 'no "nvcc"' 'launching by mpirun' none 'comm nccl' CUDA=no)"

end
