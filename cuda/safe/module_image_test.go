// Checks of PTX, cubins and fatbins before they are loaded. Needs no driver.

package safe

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCheckImage(t *testing.T) {
	ptx, err := checkImage([]byte("// text\n.version 7.0\n"))
	require.NoError(t, err)
	assert.Equal(t, "// text\n.version 7.0\n\x00", string(ptx), "the driver wants a zero byte")
	same, err := checkImage(ptx)
	require.NoError(t, err)
	assert.Equal(t, ptx, same)

	self, err := os.Executable()
	require.NoError(t, err)
	elf, err := os.ReadFile(self)
	require.NoError(t, err)
	if !bytes.HasPrefix(elf, []byte("\x7fELF")) {
		t.Skip("needs an ELF file: this program is none")
	}
	_, err = checkImage(elf)
	require.NoError(t, err)

	cubin := bytes.Clone(elf)
	binary.LittleEndian.PutUint32(cubin[20:], 129) // as CUDA 12.9 writes them
	same, err = checkImage(cubin)
	require.NoError(t, err)
	assert.EqualValues(t, 129, same[20], "nothing is changed")

	fatbin := make([]byte, 16+100)
	binary.LittleEndian.PutUint32(fatbin, 0xba55ed50)
	binary.LittleEndian.PutUint16(fatbin[6:], 16)
	binary.LittleEndian.PutUint64(fatbin[8:], 100)
	_, err = checkImage(fatbin)
	require.NoError(t, err)

	for name, test := range map[string]struct {
		image []byte
		says  string
	}{
		"nothing":          {nil, "empty"},
		"something else":   {[]byte("hello"), "not PTX, a cubin or a fatbin"},
		"cut ELF header":   {elf[:20], "not a valid ELF file"},
		"cut ELF":          {elf[:len(elf)/2], "cubin"},
		"cut fatbin":       {fatbin[:80], "truncated"},
		"huge fatbin size": {append(append([]byte{}, fatbin[:8]...), 255, 255, 255, 255, 255, 255, 255, 255), "truncated"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := checkImage(test.image)
			assert.ErrorIs(t, err, ErrInvalidArgument)
			assert.ErrorContains(t, err, test.says)
		})
	}
}

func FuzzCheckImage(f *testing.F) {
	f.Add([]byte(".version 7.0"))
	f.Add([]byte("\x7fELF\x02\x01\x01"))
	f.Add([]byte("\x50\xed\x55\xba\x01\x00\x10\x00\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, image []byte) {
		out, err := checkImage(image)
		if err == nil && &out[0] != &image[0] {
			assert.Zero(t, out[len(out)-1], "text ends in a zero byte")
			assert.Equal(t, len(out)-1, bytes.IndexByte(out, 0), "and has no other")
		}
	})
}
