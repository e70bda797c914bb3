package safe

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestParametersInPTX(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want map[string]int
	}{
		"several": {".version 7.0\n.visible .entry add(.param .u64 add_param_0, .param .align 8 .b8 add_param_1[24],\n\t.param .u32 n)\n{ld.param.u64 %rd1, [add_param_0];}\n.entry _Z1kPf(\n.param .u64 .ptr .global .align 4 _Z1kPf_param_0\n)\n.maxntid 128\n{}",
			map[string]int{"add": 3, "_Z1kPf": 1}},
		"none":              {".version 7.0\n.entry k() {ret;}\n.entry $bare {ret;}", map[string]int{"k": 0, "$bare": 0}},
		"device functions":  {".version 7.0\n.func (.param .b32 r) f(.param .b64 a, .param .b64 b) {}\n.entry k(.param .u32 n) {}", map[string]int{"k": 1}},
		"comments, strings": {".version 7.0\n// .entry a(.param .u32 n)\n/* .entry b(\n.param .u32 n) */ .entry k(/* .param */ .param .u32 n // .param\n) {}\n.file 1 \".entry c(\"", map[string]int{"k": 1}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, parameterCounts([]byte(c.text))) })
	}
	assert.Nil(t, parameterCounts([]byte{0x50, 0xed, 0x55, 0xba}), "a fatbin")
}

func TestParametersInELF(t *testing.T) {
	record := func(format, what byte, value uint16, data ...byte) []byte {
		return append([]byte{format, what, byte(value), byte(value >> 8)}, data...)
	}
	twelve := make([]byte, 12)
	image := elfOf(map[string][]byte{
		".nv.info":      record(4, 0x17, 12, twelve...),
		".nv.info.k":    bytes.Join([][]byte{record(3, 0x1b, 255), record(4, 0x17, 12, twelve...), record(4, 5, 12, twelve...), record(4, 0x17, 12, twelve...)}, nil),
		".nv.info.none": record(3, 0x1b, 255),
		".nv.info.big":  record(4, 0x45, 12, twelve...),
		".nv.info.cut":  record(4, 0x17, 4000),
		".text.k":       {1, 2, 3},
	})
	assert.Equal(t, map[string]int{"k": 2, "none": 0, "big": 1, "cut": 1}, parameterCounts(image))
	assert.Nil(t, parameterCounts(image[:len(image)-100]), "a cut file")
}

// elfOf returns an ELF file with these sections, as CUDA 12.9 writes the header.
func elfOf(sections map[string][]byte) []byte {
	const header, entry = 64, 64
	type section struct{ name, at, size uint64 }
	var data, names []byte
	list := []section{{}}
	add := func(name string, b []byte) {
		list = append(list, section{uint64(len(names)), uint64(header + len(data)), uint64(len(b))})
		names = append(append(names, name...), 0)
		data = append(data, b...)
	}
	for name, b := range sections {
		add(name, b)
	}
	add(".shstrtab", nil)
	last := &list[len(list)-1]
	last.size = uint64(len(names))
	data = append(data, names...)
	var f bytes.Buffer
	put := func(v any) { _ = binary.Write(&f, binary.LittleEndian, v) }
	h := elf.Header64{Type: 2, Machine: 190, Version: 129, Ehsize: header, Shoff: uint64(header + len(data)), Shentsize: entry, Shnum: uint16(len(list)), Shstrndx: uint16(len(list) - 1)}
	copy(h.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	put(h)
	f.Write(data)
	for i, s := range list {
		kind := uint32(elf.SHT_PROGBITS)
		switch i {
		case 0:
			kind = uint32(elf.SHT_NULL)
		case len(list) - 1:
			kind = uint32(elf.SHT_STRTAB)
		}
		put(elf.Section64{Name: uint32(s.name), Type: kind, Off: s.at, Size: s.size, Addralign: 1})
	}
	return f.Bytes()
}
