#!/bin/sh
# Puts libraries of the CUDA runtime below a folder, one subfolder a version.
# They come out of NVIDIA's own wheels, by pip, and are not installed. Without a
# GPU they load, tell their version and say that there is no device, which is
# what the tests want of them.
#
# usage: libcudart.sh FOLDER
set -eu

folder=$1
mkdir -p "$folder"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# get unpacks the library of a wheel.
get() {
	[ ! -d "$folder/$1" ] || return 0
	python3 -m pip download -q --no-deps --only-binary=:all: --platform manylinux1_x86_64 --platform manylinux2014_x86_64 \
		--dest "$work/$1" "$2==$3" >&2
	python3 - "$work/$1" <<-'END'
		import glob, os, sys, zipfile
		folder = sys.argv[1]
		with zipfile.ZipFile(glob.glob(folder + "/*.whl")[0]) as wheel:
		    for name in wheel.namelist():
		        if "/lib/libcudart.so." in name:
		            os.makedirs(folder + "/lib", exist_ok=True)
		            with open(folder + "/lib/" + os.path.basename(name), "wb") as out:
		                out.write(wheel.read(name))
	END
	mv "$work/$1/lib" "$folder/$1"
	echo "$folder/$1" >&2
}

get 11.8 nvidia-cuda-runtime-cu11 11.8.89
get 12.4 nvidia-cuda-runtime-cu12 12.4.127
get 12.9 nvidia-cuda-runtime-cu12 12.9.79
get 13.0 nvidia-cuda-runtime 13.0.96
get 13.5 nvidia-cuda-runtime 13.5.37
