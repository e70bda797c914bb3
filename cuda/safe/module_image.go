package safe

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
)

// checkImage returns image as the driver takes it. The driver gets no length: PTX must end in
// a zero byte, and of a truncated cubin or fatbin it would read past the end.
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
			return nil, fmt.Errorf("%w: the fatbin is truncated: %d bytes of %d", ErrInvalidArgument, len(image), header+size)
		}
		return image, nil
	case bytes.Contains(image, []byte(".version")):
		text, _, _ := bytes.Cut(image, []byte{0})
		return append(bytes.Clone(text), 0), nil
	}
	return nil, fmt.Errorf("%w: the image is not PTX, a cubin or a fatbin", ErrInvalidArgument)
}

func checkELF(image []byte) error {
	f, err := elf.NewFile(cubin(image))
	if err != nil {
		return fmt.Errorf("%w: the cubin is not a valid ELF file: %w", ErrInvalidArgument, err)
	}
	for _, s := range f.Sections {
		if s.Type != elf.SHT_NOBITS && (s.Offset > uint64(len(image)) || s.FileSize > uint64(len(image))-s.Offset) {
			return fmt.Errorf("%w: the cubin is truncated in section %s", ErrInvalidArgument, s.Name)
		}
	}
	return nil
}

// cubin reads an ELF file. Before CUDA 13 the header of cubins has CUDA's version in the place
// of ELF's, which package elf refuses.
type cubin []byte

func (c cubin) ReadAt(p []byte, offset int64) (int, error) {
	n, err := bytes.NewReader(c).ReadAt(p, offset)
	version := []byte{byte(elf.EV_CURRENT), 0, 0, 0}
	for i, b := range version {
		if at := 20 + int64(i) - offset; at >= 0 && at < int64(n) {
			p[at] = b
		}
	}
	return n, err
}
