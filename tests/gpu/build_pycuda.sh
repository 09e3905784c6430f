#!/bin/sh
# Builds PyCUDA into the current Python without a GPU or a driver, for the tests in this folder. About a minute.
#
#   sh tests/gpu/build_pycuda.sh [PYTHON]
#
# PyCUDA comes as a source package that wants to link with libcuda; an empty library of that name will do, because on
# a machine with a driver the real one is loaded, and in these tests the mock.
set -eu
python=$("${1:-python3}" -c "import sys; print(sys.executable)")
fail() { echo "build_pycuda: $1" >&2; exit 1; }
command -v nvcc >/dev/null || fail "nvcc is not on PATH, so there are no CUDA headers"
"$python" -c "import numpy, setuptools, wheel" || fail "$python needs numpy, setuptools and wheel"
if "$python" -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('pycuda') is None)"; then
  echo "build_pycuda: $python has pycuda already"
  exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cuda_root=$(nvcc --dryrun -x cu -c /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p')

echo | ${CXX:-g++} -shared -x c++ -Wl,-soname,libcuda.so.1 -o "$work/libcuda.so" -
"$python" -m pip download --quiet --no-deps --no-binary pycuda --no-build-isolation --dest "$work" pycuda
tar -xzf "$work"/pycuda-*.tar.gz -C "$work"
cd "$work"/pycuda-*/
"$python" configure.py --cuda-root="$cuda_root" --no-cuda-enable-curand --cudadrv-lib-dir="$work" --cxxflags=-O0,-w
# An empty library satisfies no symbol, so a linker that drops what is not needed would drop it.
LDFLAGS=-Wl,--no-as-needed "$python" -m pip install --quiet --no-build-isolation .
"$python" -c "import importlib.metadata; print('build_pycuda: installed pycuda', importlib.metadata.version('pycuda'))"
