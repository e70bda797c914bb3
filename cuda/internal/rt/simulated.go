package rt

import "github.com/cudabind/cudabind/cuda/generated/driver"

// Simulated gives err, with which a library of NVIDIA's was not found or has not started, another text if the driver is the
// simulated one: no such library works with that.
func Simulated(err error) error {
	if err == nil || driver.Find("simReset") != nil {
		return err
	}
	return simulatedError{err}
}

type simulatedError struct{ error }

func (simulatedError) Error() string {
	return "NVIDIA's libraries need a GPU, and do not work with the simulated driver: see Limits in docs/testing.md"
}

func (e simulatedError) Unwrap() error { return e.error }
