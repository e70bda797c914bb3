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
for p in driver:cuda/generated/driver runtime:cuda/generated safe:cuda/safe tour:examples/tour; do
	name=${p%%:*} package=${p#*:}
	mkdir "$out/$name"
	$go test -c -ldflags='-s -w' -o "$out/$name/$name.test" "./$package"
	if [ -d "$package/testdata" ]; then
		cp -R "$package/testdata" "$out/$name/"
	fi
done
$go build -ldflags='-s -w' -o "$out/" ./tools/cudainfo ./tools/bench ./tools/storm ./examples/vectoradd ./examples/samples
$go run ./tools/simdriver -o "$out/simulated" >/dev/null
if [ -d .cache/libcudart ]; then
	cp -R .cache/libcudart "$out/" # what make libraries got
fi
cp tools/gpu/run.sh "$out/"

# What runs on the simulated driver, to compare with.
sh "$out/run.sh" -simulated
du -sk "$out" | awk '{printf "%d MiB in %s\n", $1/1024, $2}'
