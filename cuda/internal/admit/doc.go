// Package admit decides when a call may enter CUDA's driver, which crashes if certain calls meet. It knows
// nothing of CUDA; package safe says what each call may meet. Three kinds of things keep calls apart:
//
//   - A [Mutex] admits one call at a time. Mutexes have ranks and are locked in that order, those of one rank by
//     [Order]. Under a [Leaf], no Mutex is waited for. With the build tag cudabind_lockorder, each Mutex checks that.
//   - A [Gate] admits calls until a capture that they would see is open. A short call is counted in the gate; a
//     capture that begins closes the gate and waits for those inside, which takes microseconds. A long call may
//     block for as long as the GPU works; a capture that begins waits for it with nothing locked, and keeps new
//     long calls out meanwhile.
//   - An [Exclusion] admits many calls at once, or one that must be alone: that one shuts the others out, waits
//     for those inside as long as its window, and gives up and tries again later if they take longer. Its turn
//     is a mutex for calls that may run beside the many, but not beside each other.
//
// Each says first what it does, and then looks for the other side: a call counts itself and then looks whether
// the gate is closed, a capture closes the gate and then looks at the count. Either one of them sees the other,
// or both do. [Between] marks the places between such steps; the tests of this package stop goroutines there, and
// try all orders.
//
// A [Limiter] bounds how many calls are inside at once, since each of them may block a thread. Calls in which
// waiting is not possible, on the driver's own threads, get rt.CodeCallback instead.
package admit
