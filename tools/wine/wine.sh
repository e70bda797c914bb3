#!/bin/sh
# Runs a Windows program under Debian's wine64, as in
#
#	GOOS=windows go test -exec "$PWD/tools/wine/wine.sh" ./cuda/generated/driver
#
# It needs the packages wine64 and gcc-mingw-w64-x86-64. Go wants ProcessPrng of
# bcryptprimitives.dll, which wine 8.0 lacks: the C file beside this one has it. The
# prefix is made at the first run; WINEPREFIX names another folder for it.
set -e
here=$(cd "$(dirname "$0")" && pwd)
wine64=/usr/lib/wine/wine64
export WINEDEBUG="${WINEDEBUG:--all}" WINEPREFIX="${WINEPREFIX:-$here/../../.cache/wine}"

# again runs a command until it succeeds: wine can fail beside a server of before that is ending.
again() {
	for pause in 1 2 4 0; do
		"$@" >/dev/null 2>&1 </dev/null && return
		sleep "$pause"
	done
	echo "$0: failed: $*" >&2
	return 1
}

dll=$WINEPREFIX/drive_c/windows/system32/bcryptprimitives.dll
if ! [ -e "$dll" ]; then
	mkdir -p "$WINEPREFIX"
	(
		flock 9 # several tests may begin at once
		if ! [ -e "$dll" ]; then
			again "$wine64" wineboot -i
			x86_64-w64-mingw32-gcc -O2 -shared -o "$dll.new" "$here/bcryptprimitives.c" -ladvapi32
			mv "$dll.new" "$dll"
		fi
	) 9>"$WINEPREFIX/lock"
fi
# wine's services outlive the program. Start them first, or they inherit its output, and go test waits
# for the end of that.
again "$wine64" wineboot
exec "$wine64" "$@"
