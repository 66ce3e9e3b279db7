#!/usr/bin/env bash
# Build a wheel of Horovod for the PyTorch of an environment: with Gloo, on CPUs, without MPI.
#
#   deploy/horovod/build-wheel.sh PYTHON FOLDER
#
# PYTHON is the interpreter of an environment with torch, pip, setuptools, wheel, packaging, cloudpickle, psutil, pyyaml,
# cffi and numpy; FOLDER is where the wheel goes. It needs g++ and cmake, and 3.5 minutes of two cores. The wheel is good for
# the one version of PyTorch and of Python that it was built with.
set -euo pipefail

[ $# = 2 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
python=$1 folder=$2
for tool in g++ cmake; do
    command -v "$tool" >/dev/null || { echo "$tool is needed: apt-get install g++ cmake" >&2; exit 2; }
done
"$python" -c 'import torch' || { echo "install torch into the environment of $python first" >&2; exit 2; }

# Horovod writes -std=c++14 into its CMake files and takes -std out of CXXFLAGS; the headers of PyTorch 2 need C++17. What
# the compiler is called by changes that one word. It has to be changed, not followed by another: a probe of CUDA's compiler
# takes only one.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat > "$work/c++" <<WRAPPER
#!/usr/bin/env bash
exec "$(command -v g++)" "\${@/#-std=c++1[14]/-std=c++17}"
WRAPPER
chmod +x "$work/c++"

CXX=$work/c++ LDFLAGS=-s MAKEFLAGS=-j$(nproc) \
    HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 HOROVOD_WITH_PYTORCH=1 \
    HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 \
    "$python" -m pip wheel --no-deps --no-build-isolation --wheel-dir "$folder" "horovod==${HOROVOD_VERSION:-0.28.1}"
