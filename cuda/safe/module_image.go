package safe

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
)

// checkImage makes what [Load] got into what the driver takes: text of PTX that
// ends in a zero byte, or a cubin or fatbin that is all there, since the driver
// gets no length and reads on.
func checkImage(image []byte) ([]byte, error) {
	const fatbin = 0xba55ed50
	switch {
	case len(image) == 0:
		return nil, fmt.Errorf("%w: the image is empty", ErrInvalidArgument)
	case bytes.HasPrefix(image, []byte(elf.ELFMAG)):
		return image, checkELF(image)
	case len(image) >= 16 && binary.LittleEndian.Uint32(image) == fatbin:
		header, size := uint64(binary.LittleEndian.Uint16(image[6:])), binary.LittleEndian.Uint64(image[8:])
		if size > uint64(len(image)) || header+size > uint64(len(image)) {
			return nil, fmt.Errorf("%w: the fatbin is cut off: %d bytes of %d", ErrInvalidArgument, len(image), header+size)
		}
		return image, nil
	case bytes.Contains(image, []byte(".version")):
		text, _, _ := bytes.Cut(image, []byte{0})
		return append(bytes.Clone(text), 0), nil
	}
	return nil, fmt.Errorf("%w: the image is neither PTX nor a cubin nor a fatbin", ErrInvalidArgument)
}

func checkELF(image []byte) error {
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return fmt.Errorf("%w: the cubin is broken: %w", ErrInvalidArgument, err)
	}
	for _, s := range f.Sections {
		if s.Type != elf.SHT_NOBITS && (s.Offset > uint64(len(image)) || s.FileSize > uint64(len(image))-s.Offset) {
			return fmt.Errorf("%w: the cubin is cut off in section %s", ErrInvalidArgument, s.Name)
		}
	}
	return nil
}
