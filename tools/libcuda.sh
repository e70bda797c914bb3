#!/bin/sh
# Puts the libcuda.so.1 of drivers that Debian packages below a folder, one
# subfolder a suite. They are downloaded and unpacked, not installed. Without a
# GPU they load, tell their version and say that there is no device, which is
# what the tests want of them.
#
# usage: libcuda.sh FOLDER [SUITE...]
set -eu

folder=${1:?"usage: libcuda.sh FOLDER [SUITE...]"}
shift
[ $# -gt 0 ] || set -- bookworm trixie

sources=/etc/apt/sources.list.d/debian.sources
[ -f "$sources" ] || { echo "libcuda.sh: there is no $sources: this is for Debian" >&2; exit 1; }

mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
work=$(mktemp -d "$folder/.work.XXXXXX") # beside the results: mv puts whole folders there
trap 'rm -rf "$work"' EXIT

# fetch unpacks the package of a suite. apt is given the system's own first
# entry, for that suite and the component that holds the package.
fetch() {
	mkdir -p "$work/$1/entry" "$work/$1/lists/partial" "$work/$1/cache/archives/partial"
	awk '/^$/ { exit } { print }' "$sources" |
		sed -e "s/^Suites:.*/Suites: $1/" -e 's/^Components:.*/Components: non-free/' >"$work/$1/entry/debian.sources"
	cat >"$work/$1/apt.conf" <<-END
		Dir::Etc::SourceList "/dev/null";
		Dir::Etc::SourceParts "$work/$1/entry";
		Dir::State::Lists "$work/$1/lists";
		Dir::Cache "$work/$1/cache";
		Acquire::Languages "none";
		APT::Sandbox::User "";
	END
	(
		cd "$work/$1"
		export APT_CONFIG="$work/$1/apt.conf"
		apt-get -qq update
		apt-get -qq download libcuda1
		dpkg -x libcuda1_*.deb unpacked
	)
}

for suite; do
	[ ! -e "$folder/$suite/libcuda.so.1" ] || continue
	fetch "$suite"
	library=$(find "$work/$suite/unpacked" -type f -name 'libcuda.so.*')
	mkdir "$work/$suite/done"
	mv "$library" "$work/$suite/done/"
	ln -s "$(basename "$library")" "$work/$suite/done/libcuda.so.1"
	rm -rf "${folder:?}/$suite"
	mv "$work/$suite/done" "$folder/$suite"
	echo "$folder/$suite/$(basename "$library")" >&2
done
