package driver

// Symbols tells for every function's symbol which CUDA version introduced it.
func Symbols() map[string]string {
	since := map[string]string{}
	for _, s := range symbols {
		since[s.name] = s.since
	}
	return since
}

// Refusal says why the system's loader refused a file.
var Refusal = refusal

// Unfit says why the system's loader must not see a file.
var Unfit = unfit
