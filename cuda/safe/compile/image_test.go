package compile

import (
	"errors"
	"testing"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestBestImage tests which image is for which GPU.
func TestBestImage(t *testing.T) {
	for _, c := range []struct {
		name   string
		device int
		archs  []string
		want   string // "" for none
	}{
		{"machine code", 90, []string{"compute_90", "sm_90"}, "sm_90"},
		{"of an earlier minor version", 89, []string{"compute_75", "sm_80", "sm_86", "sm_90"}, "sm_86"},
		{"not of a later one", 80, []string{"sm_86", "compute_75"}, "compute_75"},
		{"not of another major version", 100, []string{"sm_90", "compute_75", "compute_80"}, "compute_80"},
		{"the order does not matter", 100, []string{"compute_80", "compute_75", "sm_90"}, "compute_80"},
		{"no newer PTX", 75, []string{"compute_80", "compute_70"}, "compute_70"},
		{"with features of this GPU", 90, []string{"sm_90a", "sm_80"}, "sm_90a"},
		{"not with those of another", 100, []string{"sm_90a", "compute_90a", "compute_80"}, "compute_80"},
		{"with features of a family", 103, []string{"sm_100f", "compute_80"}, "sm_100f"},
		{"none", 75, []string{"sm_80", "compute_90"}, ""},
		{"no images", 75, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var images []*Image
			for _, a := range c.archs {
				f := MachineCode
				if a[0] == 'c' {
					f = PTX
				}
				images = append(images, &Image{Format: f, Arch: a})
			}
			best, err := bestImage(arch{number: c.device}, images)
			if c.want == "" {
				assert.ErrorIs(t, err, errors.ErrUnsupported)
				assert.ErrorContains(t, err, "no image is for this GPU, which is an sm_75")
				assert.ErrorContains(t, err, "compile one for sm_75, or PTX for compute_75 or an older architecture")
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.want, best.Arch)
		})
	}
}

// TestBestImageRefuses tests images that cannot be loaded.
func TestBestImageRefuses(t *testing.T) {
	for name, i := range map[string]*Image{
		"nil": nil, "LTO-IR": {Format: LTOIR, Arch: "sm_90"}, "no architecture": {}, "a wrong one": {Arch: "90"},
		"PTX's of machine code": {Arch: "compute_90"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := bestImage(arch{number: 90}, []*Image{i})
			assert.ErrorIs(t, err, safe.ErrInvalidArgument)
		})
	}
}
