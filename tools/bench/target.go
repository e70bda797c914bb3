package main

// target is what a row is to reach, all in one run.
type target struct {
	text string
	met  func(r *result, cgo float64) bool // cgo is the empty cgo call's ns
}

var (
	rawCall = target{"raw <= C + cgo + 20", func(r *result, cgo float64) bool {
		return r.Raw.Median <= r.C.Median+cgo+20 && r.Raw.Allocs == 0
	}}
	safeCall = target{"safe <= raw + 50", func(r *result, _ float64) bool {
		return r.Safe.Median <= r.Raw.Median+50 && r.Safe.Allocs == 0
	}}
	enqueueRaw = target{"safe <= raw + 200", func(r *result, _ float64) bool {
		return r.Safe.Median <= r.Raw.Median+200 && r.Safe.Allocs == 0
	}}
	launch = target{"safe <= 1.10 C", func(r *result, _ float64) bool {
		return r.Safe.Median <= 1.10*r.C.Median && r.Safe.Allocs == 0
	}}
	launch3 = target{"safe <= 1.07 C", func(r *result, _ float64) bool {
		return r.Safe.Median <= 1.07*r.C.Median && r.Safe.Allocs == 0
	}}
	batch = target{"safe <= 1.02 C", func(r *result, _ float64) bool {
		return r.Safe.Median <= 1.02*r.C.Median
	}}
	bandwidth = target{"safe >= 0.99 of C's GB/s", func(r *result, _ float64) bool {
		return r.C.Median >= 0.99*r.Safe.Median
	}}
)

// verdict is what became of a target.
type verdict struct {
	Target string `json:"target"`
	Met    bool   `json:"met"`
	// The limit of a group's target, one of the two; rows have theirs in the text alone.
	Column string  `json:"column,omitempty"`
	Most   float64 `json:"most,omitempty"`
	Least  float64 `json:"least,omitempty"`
}

func (v verdict) String() string {
	if v.Met {
		return v.Target + " ok"
	}
	return v.Target + " missed"
}
