//go:build cgo && linux && (amd64 || arm64)

package main

import (
	"encoding/json"
	"math"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestData: points and parameters are the same in each run.
func TestData(t *testing.T) {
	points, labels := spiral(7)
	again, _ := spiral(7)
	assert.Equal(t, again, points)
	assert.Equal(t, []int32{0, 1, 2, 0, 1, 2, 0}, labels)
	for i := range labels {
		assert.InDelta(t, (float64(i)+0.5)/7, math.Hypot(float64(points[2*i]), float64(points[2*i+1])), 1e-6, "from the centre to point %d", i)
	}
	r := random(1)
	assert.Equal(t, float64((1664525+1013904223)>>8)/(1<<24), r.next())

	parameters := initial()
	assert.Equal(t, initial(), parameters)
	require.Len(t, parameters, 3*64+65*64+65*3)
	assert.NotContains(t, parameters[:2*64], float32(0), "weights")
	assert.Equal(t, make([]float32, 64), parameters[2*64:3*64], "biases")
	assert.Equal(t, make([]float32, 3), parameters[len(parameters)-3:], "biases")
}

// TestPython: train.py begins with the same points and parameters.
func TestPython(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip(err)
	}
	out, err := exec.Command("python3", "-B", "-c", "import json, train; print(json.dumps([*train.spiral(99), train.initial()]))").Output()
	require.NoError(t, err)
	var points [][2]float64
	var labels []int32
	var parameters []float64
	require.NoError(t, json.Unmarshal(out, &[]any{&points, &labels, &parameters}))
	wantPoints, wantLabels := spiral(99)
	var flat []float64
	for _, p := range points {
		flat = append(flat, p[:]...)
	}
	assert.Equal(t, wantLabels, labels)
	assert.InDeltaSlice(t, wantPoints, flat, 1e-6)
	assert.InDeltaSlice(t, initial(), parameters, 1e-6)
}
