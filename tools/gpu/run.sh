#!/bin/sh
# Runs everything in this folder on the machine's GPU, or what is named:
#
#	sh run.sh [NAME...]
#
# and prints a line for each program, with the reason of each test that was
# skipped. Beside it, results/ gets the whole output of each, and NAME.tests, the
# list of the tests with what came of them. CUDABIND_LIBCUDART_GPU is the
# folder of a libcudart.so.13 to use instead of the one that came along,
# STORM_SECONDS how long random programs run, 120 without it. BUSY is how many
# loops keep processors busy meanwhile: with as many as there are processors, and
# more, threads stop at places where they hardly ever stop otherwise.
#
# ./peers -json peers.json -page peers.md measures beside other bindings, and writes
# docs/peers.md: some 5 minutes.
#
# sh gpt.sh compares the language model with the same in PyTorch: some 4 minutes.
#
# sh run.sh -simulated runs the tests of package safe on the simulated driver.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
results=$here/results
mkdir -p "$results" || exit 1
failures=0

# list makes "PASS TestName" of the output of tests.
list() {
	sed -n 's/^ *--- \([A-Z]*\): \([^ ]*\) .*/\1 \2/p' "$1" | LC_ALL=C sort -u -k2
}

# reasons says why tests were skipped: what they logged last.
reasons() {
	awk '/^ *[a-z0-9_]+\.go:[0-9]+: /{ sub(/^ *[^ ]* /, ""); said = $0 }
		/^ *--- SKIP: /{ print "  skipped " $3 ": " said }' "$1" | LC_ALL=C sort -u
}

# missing lists the tests that ran on the simulated driver and not here, but for
# parts of a test that was skipped.
missing() { # here, there
	awk '
		FNR == NR { here[$2] = 1; if ($1 == "SKIP") skipped[$2] = 1; next }
		!($2 in here) {
			n = split($2, part, "/")
			name = part[1]
			for (i = 2; i <= n && !(name in skipped); i++)
				name = name "/" part[i]
			if (!(name in skipped))
				print "  ran on the simulated driver alone: " $2
		}' "$1" "$2"
}

# selected returns whether a program or a test binary is to run.
selected() {
	test -z "$only" && return
	case " $only " in *" $1 "*) ;; *) return 1 ;; esac
}

count() { grep -c "^$1 " "$2"; }

# ended tells what became of a program, and shows its output if it failed.
ended() { # name, exit status, log, what to say
	name=$1 status=$2 log=$3 what=$4
	if [ "$status" = 0 ]; then
		echo "$name: passed$what"
		return
	fi
	failures=$((failures + 1))
	test "$status" = 124 && what=": it took too long$what"
	echo "$name: FAILED, exit status $status$what"
	grep -B 20 -e '--- FAIL' -e '^panic' -e '^fatal' -e '^SIGQUIT' "$log" | head -n 200
	tail -n 20 "$log"
}

# attempt appends the output of a test binary, without the tests named in skip, to the log. It
# ends the binary if that is silent for 3 minutes.
attempt() { # flags
	(cd "$here/tests/$binary" && exec timeout 900 "./$binary.test" -test.v -test.timeout=880s ${skip:+"-test.skip=^($skip)\$"} "$@") >>"$log" 2>&1 &
	child=$! size=-1 silent=0
	while kill -0 $child 2>/dev/null; do
		sleep 1
		silent=$((silent + 1)) before=$size size=$(wc -c <"$log")
		test "$size" = "$before" || silent=0
		test $silent = 180 && kill -QUIT $child # Go prints what each goroutine does
	done
	wait $child
}

# tests runs a test binary in its folder: its own name, the name of the
# results, the tests to skip, and flags. A test that hangs or crashes ends the
# binary, which then runs once more, without the tests that have begun.
tests() {
	binary=$1 as=$2 skip=$3
	selected "$as" || return 0
	shift 2
	test $# = 0 || shift
	log=$results/$as.log
	: >"$log"
	attempt "$@"
	status=$? twice=
	if [ $status -gt 1 ]; then # 1: a test failed
		twice=", in two runs"
		begun=$(sed -n 's/^=== RUN *\([^/]*\)$/\1/p' "$log" | sort -u | paste -s -d '|' -)
		skip=${skip:+$skip|}$begun
		attempt "$@" || status=$?
	fi
	list "$log" >"$results/$as.tests"
	ended "$as" $status "$log" ": $(count PASS "$results/$as.tests") tests passed, $(count FAIL "$results/$as.tests") failed, $(count SKIP "$results/$as.tests") skipped$twice"
	reasons "$log"
}

# program runs anything else, for limit seconds at most.
limit=120
program() {
	selected "$1" || return 0
	log=$results/$1.log
	(cd "$here" && timeout $limit "./$@") >"$log" 2>&1
	ended "$1" $? "$log" ""
}

if [ "$1" = -simulated ]; then
	unset CUDABIND_REQUIRE_GPU
	CUDABIND_SIM=$here/simulated/libcuda.so.1
	export CUDABIND_SIM
	# The older drivers have tests of their own, which build them.
	tests safe safe-simulated TestSimOtherDrivers
	exit $failures
fi

only=$*
CUDABIND_REQUIRE_GPU=1
NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0} # multicast over NVLink is not set up everywhere
export CUDABIND_REQUIRE_GPU NCCL_NVLS_ENABLE
if [ -d "$here/libcudart" ]; then
	CUDABIND_LIBCUDART=$here/libcudart
	CUDABIND_LIBCUDART_GPU=${CUDABIND_LIBCUDART_GPU:-$here/libcudart/13.0}
	export CUDABIND_LIBCUDART CUDABIND_LIBCUDART_GPU
fi

loops=
for i in $(seq "${BUSY:-0}"); do
	while :; do :; done &
	loops="$loops $!"
done
trap 'kill $loops 2>/dev/null' EXIT
trap 'exit 1' HUP INT TERM

program cudainfo
program vectoradd
program mandelbrot -o "$results/mandelbrot.png"
program imageserver -bench
program samples
program conjugategradients
program reduction
program micromagnetics -o "$results/vortex.png"
program train -o "$results/loss.png"
for e in "$here"/echo?; do
	test -f "$e" && program "$(basename "$e")" -test.v -test.run '^TestDevice$'
done
if python3 -c 'import torch' 2>/dev/null; then
	program train.py # the same in PyTorch
	program matmul.py # what the benchmarks of package blas measure
fi
tests driver driver
tests runtime runtime TestDocs # reads the sources
tests safe safe
tests compile compile
tests blas blas '' -test.bench=.
tests library library
tests sparse sparse
tests fft fft
tests random random
tests collective collective 'TestMany.*'
tests collective collective-many '' '-test.run=^TestMany'
tests profile profile
tests nocgo profile-nocgo
tests tour tour
tests images images
tests training training
tests short short
tests films films
tests language language
selected safe && test -f "$results/safe-simulated.tests" && missing "$results/safe.tests" "$results/safe-simulated.tests"
program bench -short
program peers -short -seconds 60
# storm runs random programs: the name of the results, and flags.
storm() {
	as=$1
	selected "$as" || return 0
	shift
	log=$results/$as.log
	(cd "$here" && timeout $limit ./storm "$@" -out "$results/storm") >"$log" 2>&1
	ended "$as" $? "$log" ""
}
storm storm-full -seconds 20 -profile full -children 1
for p in "$here"/failed/*.json; do # programs that failed once
	storm "storm-$(basename "$p" .json)" -replay "$p" -times 20 -hang 60s
done
seconds=${STORM_SECONDS:-120}
limit=$((seconds + 180)) # to look into what failed
storm storm-libraries -seconds "$seconds" -profile libraries
storm storm -seconds "$seconds"
for p in cudainfo vectoradd imageserver samples conjugategradients reduction micromagnetics train train.py matmul.py bench peers; do
	selected "$p" && test -f "$results/$p.log" && cat "$results/$p.log"
done
if [ -z "$only" ]; then
	grep "^Benchmark" "$results/blas.log"
	tail -q -n 1 "$results/storm-full.log" "$results/storm-libraries.log" "$results/storm.log"
fi
test $failures = 0 && echo "all passed" || echo "$failures of the programs failed"
exit $failures
