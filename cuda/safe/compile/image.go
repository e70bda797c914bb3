package compile

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
)

// LoadImage loads the image that suits the device of x best: machine code for its architecture, or for one of the same
// major version and an earlier minor one, and otherwise PTX of the newest architecture that is not newer than the
// device. It needs no NVRTC. If none suits, it returns an error that matches [errors.ErrUnsupported] and names the
// architecture to compile for. If the driver is too old for the image, the error says so.
func LoadImage(x *safe.Context, images ...*Image) (*safe.Module, error) {
	const op = "LoadImage"
	if x.Raw() == 0 {
		return nil, fail(op, safe.ErrClosed)
	}
	device, err := archOf(x.Device())
	if err != nil {
		return nil, fail(op, err)
	}
	best, err := bestImage(device, images)
	if err != nil {
		return nil, fail(op, err)
	}
	m, err := safe.LoadWith(x, best.Code, safe.LoadOptions{Names: best.Names})
	if err != nil {
		return nil, &Error{Op: op, Err: err, Hint: best.tooNew(err)}
	}
	return m, nil
}

// bestImage returns the image for a device.
func bestImage(device arch, images []*Image) (best *Image, err error) {
	var of arch
	var all []string
	for _, i := range images {
		if i == nil || i.Format == LTOIR {
			return nil, fmt.Errorf("%w: an image is nil or LTO-IR, which cannot be loaded", safe.ErrInvalidArgument)
		}
		a, err := parseArch(i.Arch, i.Format)
		if err != nil {
			return nil, err
		}
		all = append(all, a.name(i.Format))
		if !a.runsOn(device, i.Format) {
			continue
		}
		machineCode := i.Format == MachineCode
		better := best == nil || machineCode && best.Format == PTX || machineCode == (best.Format == MachineCode) && of.number < a.number
		if better {
			best, of = i, a
		}
	}
	if best == nil {
		return nil, fmt.Errorf("%w: no image is for this GPU, which is an sm_%v: there is %s; compile one for sm_%v, or PTX for compute_%v or an older architecture", errors.ErrUnsupported, device, strings.Join(all, ", "), device, device)
	}
	return best, nil
}

// runsOn tells whether code for a runs on a device. That with a suffix runs on devices of its own alone, which
// for f is its major version.
func (a arch) runsOn(device arch, f Format) bool {
	switch {
	case a.suffix == "a":
		return a.number == device.number
	case f == MachineCode || a.suffix == "f":
		return a.number/10 == device.number/10 && a.number <= device.number
	}
	return a.number <= device.number
}

var ptxVersion = regexp.MustCompile(`(?m)^\s*\.version\s+(\d+\.\d+)`)

// tooNew says what to do if the driver refuses the image for its age.
func (i *Image) tooNew(err error) string {
	var is int32
	if driver.CuDriverGetVersion(&is) != nil {
		return ""
	}
	version := fmt.Sprintf("%d.%d", is/1000, is%1000/10)
	switch {
	case errors.Is(err, driver.CUDA_ERROR_UNSUPPORTED_PTX_VERSION):
		isa := ""
		if m := ptxVersion.FindSubmatch(i.Code[:min(len(i.Code), 4096)]); m != nil {
			isa = " " + string(bytes.TrimSpace(m[1]))
		}
		return fmt.Sprintf("the driver is of CUDA %s and does not load PTX%s: install a newer driver, or compile with an older NVRTC", version, isa)
	case errors.Is(err, driver.CUDA_ERROR_INVALID_IMAGE), errors.Is(err, driver.CUDA_ERROR_NO_BINARY_FOR_GPU):
		return fmt.Sprintf("the driver is of CUDA %s: machine code of a newer major version of CUDA needs a newer driver, or an older NVRTC", version)
	}
	return ""
}
