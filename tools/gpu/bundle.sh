#!/bin/sh
# Builds what tests the bindings on a machine with a GPU and without Go, into a
# folder that is copied there and run by run.sh in it:
#
#	sh tools/gpu/bundle.sh FOLDER
#
# The C library there must be as new as the one here.
set -eu
out=$1
go=${GO:-go}

rm -rf "$out"
mkdir -p "$out"
out=$(cd "$out" && pwd)
for p in driver:cuda/generated/driver runtime:cuda/generated safe:cuda/safe compile:cuda/safe/compile blas:cuda/safe/blas collective:cuda/safe/collective profile:cuda/safe/profile tour:examples/tour images:examples/imageserver training:examples/train short:examples/short library:cuda/safe/library fft:cuda/safe/fft random:cuda/safe/random films:examples/micromagnetics language:examples/gpt; do
	name=${p%%:*} package=${p#*:}
	mkdir -p "$out/tests/$name"
	$go test -c -ldflags='-s -w' -o "$out/tests/$name/$name.test" "./$package"
	if [ -d "$package/testdata" ]; then
		cp -R "$package/testdata" "$out/tests/$name/"
	fi
done
mkdir "$out/tests/samples" "$out/tests/sparse" "$out/tests/nocgo"
$go run ./tools/headers fetch requested >/dev/null
$go test -count=1 -run '^TestSparse$' ./cuda/safe/library -args -sparse "$out/tests/sparse/sparse.test" # the binding of docs/mixing.md
CGO_ENABLED=0 $go test -c -tags cudabind_nocgo -ldflags='-s -w' -o "$out/tests/nocgo/nocgo.test" ./cuda/safe/profile
cp -R cuda/safe/profile/testdata "$out/tests/nocgo/"
cp examples/samples/*.ptx "$out/tests/samples/" # the tour loads one
$go build -ldflags='-s -w' -o "$out/" ./tools/cudainfo ./tools/bench ./tools/bench/peers ./tools/storm ./examples/vectoradd ./examples/samples \
	./examples/mandelbrot ./examples/imageserver ./examples/conjugategradients ./examples/reduction ./examples/micromagnetics ./examples/train \
	./examples/gpt ./examples/gpt/load
$go build -ldflags='-s -w' -o "$out/ranks" ./tools/bench/collective # all-reduces beside C and PyTorch: docs/scale.md
cp examples/train/train.py examples/gpt/gpt.py examples/gpt/server.py cuda/safe/blas/testdata/matmul.py "$out/"
mkdir "$out/short"
$go build -ldflags='-s -w' -o "$out/short/" ./examples/short/...
cp examples/short/*/*.py "$out/short/"
mkdir "$out/failed"
cp tools/storm/testdata/failed/*.json "$out/failed/"
$go build -ldflags='-s -w' -buildmode=c-shared -o "$out/libshared.so" ./tools/gpu/shared
rm "$out/libshared.h"
cp tools/gpu/under.sh tools/gpu/inject.c tools/gpu/torch_profile.py "$out/"
cp examples/train/train.py "$out/tests/training/" # a test compares its data
# The contestants in C and Rust: whichever cannot be built takes no part.
"$out/peers" -build || echo "the comparison with other bindings lacks what could not be built" >&2
$go run ./tools/simdriver -o "$out/simulated" >/dev/null
if [ -d .cache/libcudart ]; then
	cp -R .cache/libcudart "$out/" # what make libraries got
fi
cp tools/gpu/run.sh tools/gpu/gpt.sh "$out/"
find "$($go env GOROOT)/src" -name '*.go' | LC_ALL=C sort | xargs cat | head -c 20000000 >"$out/text" # for the language model to learn
# 1,000 random kernels, which write what they get: in parts, as large packages take the Go compiler long.
if [ -d .cache/libnvrtc/13.0 ]; then
	for seed in 1 2 3 4 5; do
		$go test -count=1 ./tools/kernels -run '^TestEcho$' -echo 200 -seed $seed -out _gpu >/dev/null
		$go test -c -vet=off -ldflags='-s -w' -o "$out/echo$seed" ./tools/kernels/_gpu
		rm -r tools/kernels/_gpu
	done
fi

# What runs on the simulated driver, to compare with.
sh "$out/run.sh" -simulated
du -sk "$out" | awk '{printf "%d MiB in %s\n", $1/1024, $2}'
