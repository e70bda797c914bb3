#!/bin/sh
# Runs programs of the bundle under NVIDIA's tools, each that this machine has:
#
#	sh under.sh
#
# A program must end well under each, as it does alone, and a debugger or a sanitizer must show no
# call of CUDA that fails. inject.c stands for what records by CUPTI, as Nsight Systems does.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
cd "$here" || exit 1
results=$here/results
mkdir -p "$results"
failures=0
CUDABIND_REQUIRE_GPU=1 NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0}
export CUDABIND_REQUIRE_GPU NCCL_NVLS_ENABLE
samples="concurrentKernels graphConditionalNodes greenContexts jacobiCudaGraphs simpleCudaGraphs streamOrderedAllocation"

# under runs a command, whose output must not have what forbidden matches.
under() { # name, forbidden, command...
	name=under-$1 forbidden=$2
	shift 2
	log=$results/$name.log
	timeout 300 "$@" >"$log" 2>&1
	status=$?
	if [ $status = 0 ] && ! grep -Eq "$forbidden" "$log"; then
		echo "$name: passed"
		return
	fi
	failures=$((failures + 1))
	echo "$name: FAILED, exit status $status"
	grep -E "$forbidden" "$log" | sort | uniq -c | head -n 20
	grep -A 30 -m 1 -e SIGSEGV -e '^panic' -e '--- FAIL' "$log"
	tail -n 5 "$log"
}

has() { command -v "$1" >/dev/null || { echo "no $1 here"; false; }; }
# found prints the first file of a name that is executable, or "".
found() { command -v "$1" || find /opt/nvidia /usr/local/cuda*/ -name "$1" -type f -perm -u+x 2>/dev/null | head -n 1; }
none='no such text'
# Not for CUPTI: what the driver alone does, and how much memory operations take; and calls in which CUDA crashes
# while CUPTI records (driver 580): cuCtxGetId for a context that other code has destroyed, cuGreenCtxCreate after a
# reset of the device, and cuGraphLaunch without memory for the graph. Green contexts made and destroyed by the hundred
# damage CUDA's memory meanwhile, so their tests run in a process of their own.
without='^(TestFact.*|TestMany|TestNewContextDestroyed|TestResetAfterGreen|TestAllocReclaims)$'
errors='Driver (API )?error|Program hit CUDA_ERROR'

cupti=$(find -L /usr/local/cuda*/ -name cupti.h 2>/dev/null | head -n 1)
if [ -n "$cupti" ] && has cc; then
	lib=$(dirname "$(find -L /usr/local/cuda*/ -name 'libcupti.so' 2>/dev/null | head -n 1)")
	cc -O1 -shared -fPIC -o libinject.so inject.c -I"$(dirname "$cupti")" -L"$lib" -lcupti -Wl,-rpath,"$lib" || exit 1
	inject="env CUDA_INJECTION64_PATH=$here/libinject.so"
	under cupti-samples "$none" $inject ./samples
	under cupti-train "$none" $inject ./train -steps 100 -o "$results/loss.png"
	for p in safe blas collective; do
		under cupti-$p "$none" $inject sh -c "cd tests/$p && exec ./$p.test -test.short -test.skip '$without|^TestGreen'"
	done
	under cupti-green "$none" $inject sh -c "cd tests/safe && exec ./safe.test -test.short -test.run '^TestGreen'"
fi
nsys=$(found nsys)
test -n "$nsys" && under nsys "$none" "$nsys" profile -t cuda -o "$results/nsys" --force-overwrite true ./samples
has ncu && under ncu "$none" ncu --clock-control none ./samples simpleCudaGraphs graphConditionalNodes greenContexts
if has compute-sanitizer; then
	for tool in memcheck racecheck initcheck synccheck; do
		under "$tool" "$errors" compute-sanitizer --tool $tool --error-exitcode 9 ./samples $samples
	done
	under memcheck-train "$errors" compute-sanitizer --error-exitcode 9 ./train -steps 20 -o "$results/loss.png"
fi
if has cuda-gdb; then
	under cuda-gdb "$errors" cuda-gdb -batch -ex run -return-child-result --args ./samples
	under cuda-gdb-train "$errors" cuda-gdb -batch -ex run -return-child-result --args ./train -steps 20 -o "$results/loss.png"
fi
if python3 -c 'import torch' 2>/dev/null; then
	under torch "$none" python3 torch_profile.py "$here/libshared.so"
	under torch-before "$none" python3 torch_profile.py "$here/libshared.so" before
fi
exit $failures
