package compile

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cudabind/cudabind/cuda/generated/nvrtc"
	"github.com/cudabind/cudabind/cuda/safe"
)

// arch is an architecture: 90 and "a" for sm_90a.
type arch struct {
	number int
	suffix string
}

// name is the architecture as NVRTC's option takes it.
func (a arch) name(f Format) string {
	if f == PTX {
		return "compute_" + a.String()
	}
	return "sm_" + a.String()
}

func (a arch) String() string { return strconv.Itoa(a.number) + a.suffix }

// archPattern leaves out numbers with which nvJitLink ends the process, as it does for those below 30.
var archPattern = regexp.MustCompile(`^(sm|compute)_([1-9][0-9]{0,2})([af]?)$`)

func parseArch(text string, f Format) (arch, error) {
	m := archPattern.FindStringSubmatch(text)
	switch {
	case text == "":
		return arch{}, fmt.Errorf("%w: Options.Arch is empty: name the architecture to compile for, such as sm_90; compile.Arch returns that of a device", safe.ErrInvalidArgument)
	case m == nil:
		return arch{}, fmt.Errorf("%w: the architecture %q is not of the form sm_90, sm_90a or compute_90", safe.ErrInvalidArgument, text)
	case m[1] == "compute" && f != PTX:
		return arch{}, fmt.Errorf("%w: %s stands for PTX: write sm_%s%s, or set Options.Format to PTX", safe.ErrInvalidArgument, text, m[2], m[3])
	}
	number, _ := strconv.Atoi(m[2])
	if number < 30 {
		return arch{}, fmt.Errorf("%w: the architecture %q is older than sm_30, or there is none of that name", safe.ErrInvalidArgument, text)
	}
	return arch{number, m[3]}, nil
}

// Arch returns the architecture of a device, such as "sm_90".
func Arch(d safe.Device) (string, error) {
	a, err := archOf(d)
	return a.name(MachineCode), err
}

func archOf(d safe.Device) (arch, error) {
	major, minor, err := d.ComputeCapability()
	return arch{number: 10*major + minor}, err
}

// known lists the architectures of this NVRTC in ascending order, none if it does not tell.
func known() ([]int, error) {
	var n int32
	if err := nvrtc.NvrtcGetNumSupportedArchs(&n); err != nil || n <= 0 {
		if _, _, absent := nvrtc.Library(); absent == nil && errors.Is(err, errors.ErrUnsupported) {
			return nil, nil
		}
		return nil, err
	}
	raw := make([]int32, n)
	if err := nvrtc.NvrtcGetSupportedArchs(&raw[0]); err != nil {
		return nil, err
	}
	all := make([]int, n)
	for i, a := range raw {
		all[i] = int(a)
	}
	return all, nil
}

// refuseArch returns an error if NVRTC does not compile for a.
func refuseArch(a arch, f Format, known []int, version string) error {
	name := a.name(f)
	first := map[string]int{"": 0, "a": 90, "f": 100}[a.suffix]
	switch {
	case a.number < first:
		return fmt.Errorf("%w: there is no %s: architectures with %s begin with sm_%d%s; write sm_%d", safe.ErrInvalidArgument, name, a.suffix, first, a.suffix, a.number)
	case a.suffix == "f" && !newer(version, "12.8"):
		return fmt.Errorf("%w: NVRTC %s does not know %s: get NVRTC 12.9 or newer with go run github.com/cudabind/cudabind/tools/libs@latest get nvrtc", errors.ErrUnsupported, version, name)
	case len(known) == 0 || slices.Contains(known, a.number):
		return nil
	case a.number < known[0]:
		older, major := 12, "-version 12 "
		if a.number < 50 {
			older, major = 11, ""
		}
		get := ": get it with go run github.com/cudabind/cudabind/tools/libs@latest get " + major + "nvrtc, and name its folder in nvrtc.Open"
		if major == "" {
			get = ", which comes with the CUDA toolkit 11.8"
		}
		return fmt.Errorf("%w: NVRTC %s compiles for sm_%d and newer, and not for %s: use NVRTC %d%s", errors.ErrUnsupported, version, known[0], name, older, get)
	}
	return fmt.Errorf("%w: NVRTC %s does not know %s, but %s: get a newer one with go run github.com/cudabind/cudabind/tools/libs@latest get nvrtc, or compile PTX for an older architecture", errors.ErrUnsupported, version, name, list(known))
}

// list is "sm_75, sm_80, ...".
func list(known []int) string {
	names := make([]string, len(known))
	for i, n := range known {
		names[i] = "sm_" + strconv.Itoa(n)
	}
	return strings.Join(names, ", ")
}

// forDevice is what to compile for a device: machine code for it, or PTX of the newest
// architecture before it if NVRTC does not know it.
func forDevice(a arch, f Format, known []int) (arch, Format) {
	if len(known) == 0 || slices.Contains(known, a.number) || a.number < known[0] {
		return a, f
	}
	i, _ := slices.BinarySearch(known, a.number)
	return arch{number: known[i-1]}, PTX
}
