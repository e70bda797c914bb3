#!/bin/sh
# Puts CUDA libraries below a folder: NAME/VERSION/NAME.so.*. They come out of
# NVIDIA's own wheels, by pip, and are not installed. Without a GPU they load and
# tell their version, and a compiler compiles, which is what the tests want of
# them.
#
# usage: libraries.sh FOLDER
set -eu

folder=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# get unpacks the libraries of a wheel: name, CUDA version, wheel, its version.
get() {
	to=$folder/$1/$2
	[ ! -d "$to" ] || return 0
	python3 -m pip download -q --no-deps --only-binary=:all: --platform manylinux1_x86_64 --platform manylinux2014_x86_64 --platform manylinux_2_25_x86_64 --platform manylinux_2_27_x86_64 --platform manylinux_2_28_x86_64 \
		--dest "$work/$1$2" "$3==$4" >&2
	python3 - "$work/$1$2" "$1" <<-'END'
		import glob, os, sys, zipfile
		folder, name = sys.argv[1:]
		os.makedirs(folder + "/lib")
		with zipfile.ZipFile(glob.glob(folder + "/*.whl")[0]) as wheel:
		    for file in wheel.namelist():
		        base = os.path.basename(file)
		        if base.startswith(name) and ".so." in base and ".alt." not in base:
		            with open(folder + "/lib/" + base, "wb") as out:
		                out.write(wheel.read(file))
	END
	mkdir -p "$folder/$1"
	mv "$work/$1$2/lib" "$to"
	rm -r "$work/$1$2"
	echo "$to" >&2
}

get libcudart 11.8 nvidia-cuda-runtime-cu11 11.8.89
get libcudart 12.4 nvidia-cuda-runtime-cu12 12.4.127
get libcudart 12.9 nvidia-cuda-runtime-cu12 12.9.79
get libcudart 13.0 nvidia-cuda-runtime 13.0.96
get libcudart 13.5 nvidia-cuda-runtime 13.5.37
get libnvrtc 12.0 nvidia-cuda-nvrtc-cu12 12.0.76
get libnvrtc 12.4 nvidia-cuda-nvrtc-cu12 12.4.127
get libnvrtc 12.9 nvidia-cuda-nvrtc-cu12 12.9.86
get libnvrtc 13.0 nvidia-cuda-nvrtc 13.0.88
get libnvrtc 13.5 nvidia-cuda-nvrtc 13.5.37
get libnvJitLink 12.9 nvidia-nvjitlink-cu12 12.9.86
get libnvJitLink 13.5 nvidia-nvjitlink 13.5.37
get libcublas 13.5 nvidia-cublas 13.10.0.20
get libcufft 12.9 nvidia-cufft-cu12 11.4.1.4
get libcufft 13.5 nvidia-cufft 12.5.0.14
get libcupti 12.9 nvidia-cuda-cupti-cu12 12.9.79
get libcupti 13.5 nvidia-cuda-cupti 13.5.25
get libcurand 12.9 nvidia-curand-cu12 10.3.10.19
get libcurand 13.5 nvidia-curand 10.4.5.25
get libnccl 13.5 nvidia-nccl-cu13 2.32.3
