"""Builds the pretend CUDA libraries for an installed CUDA build of torch: runtime, NCCL and NVML, the rest stubs.

    python tests/pretend_cuda/build.py FOLDER        # then LD_LIBRARY_PATH=FOLDER python ...

Which libraries and functions torch asks for is read from its own shared libraries. A stub returns success and does
nothing; one that creates a handle gives one out, and one that computes becomes a launch on its handle's stream.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).parent
UNVERSIONED = {
    "nccl": "libnccl.so.2",
    "curand": "libcurand.so.10",
    "cusparseLt": "libcusparseLt.so.0",
    "cuFile": "libcufile.so.0",
    "cu[A-Z]": "libcuda.so.1",
}
"""Libraries that don't version their symbols, by how their functions begin."""
SYSTEM = ("GLIBC", "GCC", "CXXABI", "OMP", "GOMP")
LIBRARY_OF_VERSION = {"NVSHMEM": "libnvshmem_host.so.3"}
RUNTIME = "libcudart.so"
OURS = {"libnccl.so.2": "nccl.cpp", "libcupti.so.13": "cupti.cpp", "libnvidia-ml.so.1": "nvml.cpp"}
"""Libraries that do more than stubs can; NVML isn't asked for by torch."""
SHARED = ["-shared", "-fPIC", "-O1"]
CPP = ["g++", "-std=c++17", *SHARED]
NOT_SUPPORTED = 801
"""cudaErrorNotSupported: the answer of functions that the pretend runtime lacks."""
CREATES = re.compile(r"(Create|Alloc)(_v2|WithFlags|Tensor|Filter|Mat)?")
QUIET = re.compile(
    r"Create|Destroy|Set|Get|Query|Version|bufferSize|Size|Init|Config|Descriptor|Desc|Backend|Comm|Group"
)
SECOND_ARGUMENT = {"cudnnBackendCreateDescriptor"}
STREAM = re.compile(r"^(cublas|cusolver\w*|cusparse|cudnn|cufft)SetStream(_v2)?$")


def undefined(folder: Path) -> dict[str, set[str]]:
    """Library → functions that torch's libraries want from it."""
    wanted: dict[str, set[str]] = defaultdict(set)
    for library in folder.glob("*.so*"):
        needed = subprocess.run(["readelf", "-d", str(library)], capture_output=True, text=True, check=True).stdout
        for name in re.findall(r"NEEDED.*\[(lib(?:cu|nv|nccl)[^]]*)\]", needed):
            wanted[name]  # also one of which no function is called
        command = ["nm", "-D", "--undefined-only", "--with-symbol-versions", str(library)]
        for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
            name, _, version = line.split()[-1].replace("@@", "@").partition("@")
            if version and not version.startswith(SYSTEM):
                wanted[LIBRARY_OF_VERSION.get(version, version)].add(f"{name}@{version}")
            elif not version:
                home = next((file for start, file in UNVERSIONED.items() if re.match(start, name)), None)
                if home:
                    wanted[home].add(f"{name}@")
    return wanted


HEAD = """#include <stdlib.h>
#include <string.h>
int pretend_set_stream(void *, void *);
int pretend_launch(void *);
int pretend_context(int);
"""
SPECIAL = {
    "cufftXtMakePlanMany": """
long cufftXtMakePlanMany(int plan, int rank, void *n, void *inembed, long long istride, long long idist, int input,
                         void *onembed, long long ostride, long long odist, int output, long long batch, size_t *bytes,
                         int execution) {
    *bytes = 0;
    return 0;
}""",
    "cuDevicePrimaryCtxGetState": """
long cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
  *flags = 0;
  *active = pretend_context(device);
  return 0;
}""",
    "cublasLtMatmulAlgoGetHeuristic": """
struct heuristic { unsigned long long algorithm[8]; size_t workspace; int status; float waves; int reserved[4]; };
long cublasLtMatmulAlgoGetHeuristic(void *handle, void *operation, void *a, void *b, void *c, void *d, void *preference,
                                    int wanted, struct heuristic *results, int *count) {
  memset(results, 0, sizeof *results);
  *count = 1;
  return 0;
}""",
    "cublasLtMatmul": """
long cublasLtMatmul(void *handle, void *operation, void *alpha, void *a, void *da, void *b, void *db, void *beta,
                    void *c, void *dc, void *d, void *dd, void *algorithm, void *workspace, size_t size, void *stream) {
  pretend_set_stream(handle, stream);
  return pretend_launch(handle);
}""",
}
"""Functions with later arguments that matter, from their documentation."""


def stub(name: str) -> str:
    """C code of one function."""
    if name in SPECIAL:
        return SPECIAL[name]
    if STREAM.match(name):
        body = "return pretend_set_stream(first, second);"
    elif name.startswith("cufft") and "Create" in name:
        body = "*(int *)first = 1; return 0;"
    elif name in SECOND_ARGUMENT:
        body = "*(void **)second = malloc(64); return 0;"
    elif name.startswith(("cublas", "cusolver", "cusparse", "cudnn", "curand")) and CREATES.search(name):
        body = "*(void **)first = malloc(64); return 0;"
    elif name == "cuCtxGetCurrent":
        body = "static int context; *(void **)first = &context; return 0;"
    elif "GetVersion" in name and name.startswith("cudnn"):
        body = "return 91900;"
    elif name == "nvrtcVersion":
        body = "*(int *)first = 13; *(int *)second = 0; return 0;"
    elif "GetErrorString" in name or "GetLastError" in name or "GetResultString" in name:
        body = 'return (long)"pretended";'
    elif name.startswith(("cublas", "cusolver", "cusparse", "cudnn", "cufft")) and not QUIET.search(name):
        body = "return pretend_launch(first);"
    else:
        body = "return 0;"
    return f"long {name}(void *first, void *second) {{ (void)first; (void)second; {body} }}"


def build(folder: Path, torch_libraries: Path) -> None:
    """Compile everything into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = undefined(torch_libraries)
    runtime = next(name for name in wanted if name.startswith(RUNTIME))
    versions = folder / "runtime.map"
    versions.write_text(f"{runtime} {{ global: *; }};\n")
    compiler = [*CPP, str(HERE / "runtime.cpp"), f"-Wl,--version-script={versions}"]
    linked = [f"-Wl,-soname,{runtime}", "-o", str(folder / runtime)]
    subprocess.run([*compiler, *linked], check=True)
    missing = {each.partition("@")[0] for each in wanted.pop(runtime)} - exported(folder / runtime)
    unsupported = folder / "unsupported.cpp"
    unsupported.write_text("".join(f'extern "C" int {name}() {{ return {NOT_SUPPORTED}; }}\n' for name in missing))
    subprocess.run([*compiler, str(unsupported), *linked], check=True)
    options = [f"-L{folder}", f"-l:{runtime}"]
    for library, code in OURS.items():
        command = [*CPP, str(HERE / code), f"-Wl,-soname,{library}", *options, "-o", str(folder / library)]
        subprocess.run(command, check=True)
    for library, functions in wanted.items():
        names = sorted(each.partition("@")[0] for each in functions)
        objects: list[str] = []
        if library in OURS:
            names = sorted(set(names) - exported(folder / library))
            objects = [str(folder / f"{library}.o")]
            subprocess.run([*CPP[:2], "-fPIC", "-O1", "-c", str(HERE / OURS[library]), "-o", *objects], check=True)
        version = next(iter(functions), "").partition("@")[2]
        source = folder / f"{library}.c"
        source.write_text(HEAD + "\n".join(map(stub, names)) + "\n")
        linking = [*objects, f"-Wl,-soname,{library}", *options]
        if version:
            script = folder / f"{library}.map"
            script.write_text(f"{version} {{ global: *; }};\n")
            linking.append(f"-Wl,--version-script={script}")
        linker = "g++" if objects else "gcc"
        stubs = str(folder / f"{library}.stubs.o")
        subprocess.run(["gcc", "-w", "-fPIC", "-O1", "-c", str(source), "-o", stubs], check=True)
        subprocess.run([linker, *SHARED, stubs, *linking, "-o", str(folder / library)], check=True)


def exported(library: Path) -> set[str]:
    """Functions that a library defines."""
    command = ["nm", "-D", "--defined-only", str(library)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split()[-1].partition("@")[0] for line in lines}


if __name__ == "__main__":
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        raise SystemExit("torch isn't installed")
    build(Path(sys.argv[1]), Path(found.origin).parent / "lib")
