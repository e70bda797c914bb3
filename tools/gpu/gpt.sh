#!/bin/sh
# Compares examples/gpt with the same training in PyTorch, in a folder that bundle.sh has made:
#
#	sh gpt.sh [GPUS [ROUNDS]]
#
# prints how far the losses of 200 steps are from each other, and the times of both.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
gpus=${1:-1} rounds=${2:-3} out=$here/results/gpt
mkdir -p "$out" && cd "$here" || exit 1
export NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0}

torch="timeout 300 python3 gpt.py"
[ "$gpus" = 1 ] || torch="timeout 300 torchrun --nproc-per-node $gpus gpt.py"

again() { cp "$out/start.model" "$out/go.model"; } # from the first step

took() { # what to run
	python3 -c '
import resource, subprocess, sys, time
begin = time.monotonic()
subprocess.run(sys.argv[1:])
took, used = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
print(f"all took {took:.1f} s, {used.ru_utime + used.ru_stime:.1f} s of CPU time and at most {used.ru_maxrss // 1024} MiB of the host")
' "$@"
}

go="timeout 300 ./gpt -text text -gpus $gpus -save 100000 -plot $out/loss.png -model $out/go.model"

rm -f "$out/start.model"
timeout 300 ./gpt -text text -steps 0 -model "$out/start.model" || exit 1
echo "== losses"
again
$go -steps 200 -dropout 0 -report 100
$torch -text text -model "$out/start.model" -steps 200 -dropout 0 -report 100 -losses "$out/losses"
python3 - "$out" <<'END' || exit 1
import json, sys
import numpy as np
with open(sys.argv[1] + "/go.model", "rb") as f:
    steps = json.loads(f.readline())["Step"]
    ours = np.frombuffer(f.read()[-4 * steps :], dtype="<f4")
theirs = np.fromfile(sys.argv[1] + "/losses", dtype="<f4")
print("largest difference of a loss:", np.abs(ours - theirs).max(), "mean:", np.abs(ours - theirs).mean(), "last:", ours[-1], theirs[-1])
END
for round in $(seq "$rounds"); do
	echo "== round $round: Go, PyTorch, PyTorch with torch.compile, and with its graphs"
	again
	$go -steps 300 -report 100 -tests 1 | tail -n 2
	$torch -text text -model "$out/start.model" -steps 300 -report 1000 | tail -n 2
	$torch -text text -model "$out/start.model" -steps 300 -report 1000 -compile | tail -n 2
	$torch -text text -model "$out/start.model" -steps 300 -report 1000 -compile reduce-overhead | tail -n 2
done
echo "== the first 10 steps, with all that comes before"
again
took $go -steps 10 -report 10 -tests 1
took $torch -text text -model "$out/start.model" -steps 10
