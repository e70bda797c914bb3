package safe

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"regexp"
	"strings"

	"github.com/cudabind/cudabind/cuda/generated/driver"
)

// parameterCounts returns the number of parameters of each kernel in a checked image, as far
// as the image tells: PTX and machine code do, a fatbin may be compressed. Drivers before
// CUDA 13.2 have no call for it. They fail for the first parameter that is not there, which
// debuggers report as an error of the program.
func parameterCounts(image []byte) map[string]int {
	if bytes.HasPrefix(image, []byte(elf.ELFMAG)) {
		return parametersInELF(image)
	}
	if bytes.Contains(image, []byte(".version")) {
		return parametersInPTX(image)
	}
	return nil
}

var (
	ptxIgnored = regexp.MustCompile(`(?s)"[^"\n]*"|/\*.*?\*/|//[^\n]*`)
	ptxEntry   = regexp.MustCompile(`\.entry\s+([\w$%]+)\s*(?:\(([^)]*)\))?`)
	ptxParam   = regexp.MustCompile(`\.param\b`)
)

func parametersInPTX(text []byte) map[string]int {
	counts := map[string]int{}
	for _, entry := range ptxEntry.FindAllSubmatch(ptxIgnored.ReplaceAll(text, []byte(" ")), -1) {
		counts[string(entry[1])] = len(ptxParam.FindAll(entry[2], -1))
	}
	return counts
}

// parametersInELF counts the records of parameters in the section that describes each kernel.
func parametersInELF(image []byte) map[string]int {
	f, err := elf.NewFile(cubin(image))
	if err != nil {
		return nil
	}
	counts := map[string]int{}
	for _, s := range f.Sections {
		kernel, ok := strings.CutPrefix(s.Name, ".nv.info.")
		if !ok {
			continue
		}
		records, err := s.Data()
		if err != nil {
			return nil
		}
		counts[kernel] = parameterRecords(records)
	}
	return counts
}

// parameterRecords counts the records that describe a parameter. A record has a format, what
// it describes, and a value of 2 bytes: for the format sized, that is the size of what follows.
func parameterRecords(records []byte) (count int) {
	const (
		sized     = 4
		parameter = 0x17
		large     = 0x45 // a parameter of a kernel with more than 4 KiB of them
	)
	for len(records) >= 4 {
		format, what, value := records[0], records[1], int(binary.LittleEndian.Uint16(records[2:]))
		records = records[4:]
		if format == sized {
			if what == parameter || what == large {
				count++
			}
			records = records[min(value, len(records)):]
		}
	}
	return count
}

// parameterCount returns the number of parameters of a kernel, or -1 if neither the driver nor
// the image tells. The context is current.
func (k *Kernel) parameterCount() (int, error) {
	var n uint64
	err := driver.CuFuncGetParamCount(k.function, &n)
	if !errors.Is(err, ErrNotSupported) {
		return int(n), err
	}
	m := k.module.core
	if count, ok := m.parameters[m.renamed(k.name)]; ok {
		return count, nil
	}
	return -1, nil
}
