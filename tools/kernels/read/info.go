package read

import (
	"fmt"
	"path/filepath"
)

// Attributes of a section .nv.info.
const (
	maxThreads      = 0x05 // three numbers, by __launch_bounds__
	parameterInfo   = 0x17
	parameterInfoV2 = 0x45 // of kernels with more than 4 KiB of parameters
	clusterSize     = 0x3d // three numbers, by __cluster_dims__
	sized           = 4    // the format of attributes with as many bytes as they say
)

// check compares the kernel's parameters with those that the machine code has, and reads its
// launch bounds.
func (r *reader) check(k *Kernel) error {
	section := r.elf.Section(".nv.info." + k.Symbol)
	if section == nil {
		return fmt.Errorf("kernel %s: the cubin does not describe its parameters", k.Name)
	}
	rest, err := section.Data()
	if err != nil {
		return err
	}
	order, count := r.elf.ByteOrder, 0
	for len(rest) >= 4 {
		format, attribute, n := rest[0], rest[1], int(order.Uint16(rest[2:]))
		rest = rest[4:]
		if format != sized {
			continue
		}
		if n > len(rest) {
			return fmt.Errorf("kernel %s: its description in the cubin is cut off", k.Name)
		}
		data := rest[:n]
		rest = rest[n:]
		switch {
		case (attribute == parameterInfo || attribute == parameterInfoV2) && n >= 12:
			size := int64(order.Uint32(data[8:]) >> 18)
			if attribute == parameterInfoV2 {
				size = int64(order.Uint16(data[8:]))
			}
			i := int(order.Uint16(data[4:]))
			if len(k.Parameters) == 0 {
				return fmt.Errorf("%s:%d: kernel %s: this NVRTC does not tell its parameters, as it is made by a macro: use NVRTC 12.9 or newer, or write the kernel out", filepath.Base(k.At.File), k.At.Line, k.Name)
			}
			if i >= len(k.Parameters) || k.Parameters[i].Type.Size != size {
				return fmt.Errorf("%s:%d: kernel %s: parameter %d has %d bytes in the machine code, and not as many in the debug information, as NVRTC 12 has it for packed structs inside of others: use another version, or do not pack", filepath.Base(k.At.File), k.At.Line, k.Name, i+1, size)
			}
			count++
		case attribute == maxThreads && n >= 12:
			k.MaxThreads = int(order.Uint32(data) * order.Uint32(data[4:]) * order.Uint32(data[8:]))
		case attribute == clusterSize && n >= 12:
			k.Cluster = [3]int{int(order.Uint32(data)), int(order.Uint32(data[4:])), int(order.Uint32(data[8:]))}
		}
	}
	if count != len(k.Parameters) {
		return fmt.Errorf("kernel %s: the machine code has %d parameters, the debug information %d", k.Name, count, len(k.Parameters))
	}
	return nil
}
