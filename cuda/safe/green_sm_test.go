//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Splitting multiprocessors. Runs on any driver for CUDA 12.4 or newer.

package safe_test

import (
	"testing"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// multiprocessors returns all multiprocessors of device 0, or skips the test.
func multiprocessors(t *testing.T) safe.SMResource {
	t.Helper()
	needs(t, "cuGreenCtxCreate")
	devices, err := safe.Devices()
	require.NoError(t, err)
	all, err := devices[0].SMResource()
	require.NoError(t, err)
	return all
}

// splitInto splits all multiprocessors of device 0 into n small groups.
func splitInto(t *testing.T, n int) []safe.SMResource {
	t.Helper()
	groups, _, err := multiprocessors(t).Split(safe.SplitOptions{Groups: n})
	require.NoError(t, err)
	require.Len(t, groups, n)
	return groups
}

func TestSMs(t *testing.T) {
	all := multiprocessors(t)
	d := all.Device()
	n, err := d.Attribute(driver.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
	require.NoError(t, err)
	assert.Equal(t, n, all.Count())
	assert.Contains(t, all.String(), "multiprocessors of device 0")
	raw := all.Raw()
	assert.Equal(t, driver.CU_DEV_RESOURCE_TYPE_SM, raw.Type)
	assert.Zero(t, safe.SMResource{}.Count())
}

// TestSMsMissing: on a driver without green contexts, the error names the CUDA version
// that has them.
func TestSMsMissing(t *testing.T) {
	if driver.Find("cuGreenCtxCreate") == nil {
		t.Skip("the driver has green contexts")
	}
	x := open(t, 0)
	s := stream(t, x)
	for name, call := range map[string]func() error{
		"Device.SMResource":   func() error { _, err := x.Device().SMResource(); return err },
		"Device.Split":        func() error { _, _, err := x.Device().Split(safe.SplitOptions{}); return err },
		"Stream.SMResource":   func() error { _, err := s.SMResource(); return err },
		"Stream.GreenContext": func() error { _, err := s.GreenContext(); return err },
	} {
		t.Run(name, func(t *testing.T) {
			err := call()
			assert.ErrorIs(t, err, safe.ErrNotSupported)
			assert.ErrorContains(t, err, name)
			assert.ErrorContains(t, err, "12.4")
		})
	}
}

func TestSplit(t *testing.T) {
	all := multiprocessors(t)
	for _, c := range []struct {
		name string
		o    safe.SplitOptions
		n    int // 0 for some
	}{
		{"as many as possible", safe.SplitOptions{}, 0},
		{"one", safe.SplitOptions{Groups: 1}, 1},
		{"three", safe.SplitOptions{Groups: 3, Min: 1}, 3},
		{"rounded", safe.SplitOptions{Groups: 2, Min: 5}, 2},
		{"fine", safe.SplitOptions{Groups: 4, Min: 2, Flags: driver.CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING}, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			groups, rest, err := all.Split(c.o)
			require.NoError(t, err)
			require.NotEmpty(t, groups)
			if c.n > 0 {
				require.Len(t, groups, c.n)
			}
			sum := rest.Count()
			for _, g := range groups {
				assert.GreaterOrEqual(t, g.Count(), max(c.o.Min, 1))
				assert.Equal(t, groups[0].Count(), g.Count())
				assert.Equal(t, all.Device(), g.Device())
				sum += g.Count()
			}
			assert.Equal(t, all.Count(), sum)
		})
	}
	groups, rest, err := all.Device().Split(safe.SplitOptions{Groups: 2})
	require.NoError(t, err)
	assert.Equal(t, all.Count(), 2*groups[0].Count()+rest.Count())

	for _, c := range []struct {
		name string
		of   safe.SMResource
		o    safe.SplitOptions
		want error
	}{
		{"fewer than none", all, safe.SplitOptions{Groups: -1}, safe.ErrRange},
		{"groups of fewer than none", all, safe.SplitOptions{Min: -1}, safe.ErrRange},
		{"more than there are", all, safe.SplitOptions{Min: all.Count() + 1}, safe.ErrRange},
		{"more groups than there are", all, safe.SplitOptions{Groups: all.Count() + 1}, safe.ErrRange},
		{"nothing", safe.SMResource{}, safe.SplitOptions{}, safe.ErrRange},
		{"a group", groups[0], safe.SplitOptions{}, driver.CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION},
	} {
		t.Run(c.name, func(t *testing.T) {
			groups, rest, err := c.of.Split(c.o)
			assert.ErrorIs(t, err, c.want)
			assert.Empty(t, groups)
			assert.Zero(t, rest.Count())
		})
	}
}

func TestSplitGroups(t *testing.T) {
	all := multiprocessors(t)
	if driver.Find("cuDevSmResourceSplit") != nil {
		_, _, err := all.SplitGroups(safe.SMGroupOptions{Count: 8})
		assert.ErrorIs(t, err, safe.ErrNotSupported)
		assert.ErrorContains(t, err, "13.1")
		return
	}
	groups, rest, err := all.SplitGroups(safe.SMGroupOptions{Count: 16}, safe.SMGroupOptions{Count: 8, Coscheduled: 4, PreferredCoscheduled: 8})
	require.NoError(t, err)
	require.Len(t, groups, 2)
	assert.Equal(t, 16, groups[0].Count())
	assert.Equal(t, 8, groups[1].Count())
	assert.Equal(t, all.Count()-24, rest.Count())

	groups, rest, err = all.SplitGroups(safe.SMGroupOptions{Count: 8}, safe.SMGroupOptions{Coscheduled: 2, Flags: driver.CU_DEV_SM_RESOURCE_GROUP_BACKFILL})
	require.NoError(t, err)
	assert.Equal(t, all.Count(), groups[0].Count()+groups[1].Count()+rest.Count())
	assert.Positive(t, groups[1].Count())

	for _, c := range []struct {
		name   string
		of     safe.SMResource
		wishes []safe.SMGroupOptions
		want   error
	}{
		{"none", all, nil, safe.ErrRange},
		{"of nothing", safe.SMResource{}, []safe.SMGroupOptions{{}}, safe.ErrRange},
		{"less than none", all, []safe.SMGroupOptions{{Count: 8}, {Count: -8}}, safe.ErrRange},
		{"more than there are", all, []safe.SMGroupOptions{{Count: all.Count() + 2}}, safe.ErrRange},
		{"more than are left", all, []safe.SMGroupOptions{{Count: all.Count() / 8 * 8}, {Count: 8}}, driver.CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION},
		{"odd", all, []safe.SMGroupOptions{{Count: 9, Coscheduled: 2}}, driver.CUDA_ERROR_INVALID_VALUE},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := c.of.SplitGroups(c.wishes...)
			assert.ErrorIs(t, err, c.want)
		})
	}
}
